import type { NamesOf } from '../base/check-options.ts'
import type { Duration } from '../duration.ts'
import type { LimitOptions } from './calls.ts'
import { GRANT_NAMES } from './grants.ts'

/** Options of an estimate without a name. */
export interface PlainReserveOptions extends Omit<LimitOptions, 'force'> {
  /** Makes it a reservation with a name. */
  readonly id?: never
  /** Not without `id`. */
  readonly expires?: never
}

/** Options of an estimate with a name. */
export interface NamedReserveOptions extends Omit<LimitOptions, 'force' | 'once'> {
  /**
   * The name of the reservation. A key's reservations have different names: the same name again charges
   * nothing, and the answer has `repeated: true`. Prefix and key may have about 1,000 bytes together with twice
   * the id.
   */
  readonly id: string
  /**
   * How long the work may take. After that, `settleExpired` may end the reservation. Until it is settled it
   * stays open, and its name is remembered for a day from its end, or from the settlement if that is later.
   */
  readonly expires: Duration
  /** The name is charged once by itself. */
  readonly once?: never
}

/** Options of `reserve`. */
export type ReserveOptions = PlainReserveOptions | NamedReserveOptions

export const RESERVE_NAMES: NamesOf<ReserveOptions> = {
  ...GRANT_NAMES,
  rate: true,
  atLeast: true,
  id: true,
  expires: true,
}
