import type { Checker } from './checker.ts'
import type { FundedCall } from './funds.ts'

/** The parts of a `Ratelimit` that other entries of the package use. */
export interface Handle {
  readonly checker: Checker
  /** Hashes a key for storage. Undefined if keys are stored as they are. */
  readonly hash: ((key: unknown) => Promise<string>) | undefined
  /** Makes a call that funds pay. Undefined if each call of the limiter has one row. */
  readonly funded: ((key: string, asked: FundedOptions) => Promise<FundedCall>) | undefined
}

/** What a call asks of funds. */
export interface FundedOptions {
  readonly rate?: number | undefined
  readonly force?: boolean | undefined
  readonly atLeast?: number | undefined
}

/** The handle of each `Ratelimit` of this copy of the package. */
export const handles: WeakMap<object, Handle> = new WeakMap()
