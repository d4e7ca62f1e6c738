import type { Duration } from '../duration.ts'
import type { CallOptions, LimitOptions, OnceOptions } from './calls.ts'

/** Options of `grant`. */
export interface GrantOptions extends CallOptions, OnceOptions {}

/** Options of a grant of `Ratelimit.credits`. */
export interface CreditGrantOptions extends Pick<CallOptions, 'tx'> {
  /**
   * The name of the grant, such as a payment's id. A key's grants have different ids: the same id again grants
   * nothing. Key, id and prefix may have about 1,000 bytes together, of which the id counts twice.
   */
  readonly id: string
  /** When the grant ends, or how long it lasts. From then on it has nothing left. Default: never. */
  readonly expires?: Date | Duration | undefined
  /** Which grant is used first: a whole number from 0, the first, to 100. Default: `50`. */
  readonly priority?: number | undefined
}

/** Options of a check of `Ratelimit.credits`. */
export type CreditLimitOptions = Pick<LimitOptions, 'tx' | 'once' | 'rate' | 'force' | 'atLeast'>
