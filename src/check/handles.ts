import type { Checker } from './checker.ts'

/** The parts of a `Ratelimit` that other entries of the package use. */
export interface Handle {
  readonly checker: Checker
  /** Hashes a key for storage. Undefined if keys are stored as they are. */
  readonly hash: ((key: unknown) => Promise<string>) | undefined
}

/** The handle of each `Ratelimit` of this copy of the package. */
export const handles: WeakMap<object, Handle> = new WeakMap()
