import type { Duration } from '../duration.ts'
import type { LimitOptions, OnceOptions, TxOptions } from './calls.ts'

/** Why `expires` is refused. */
export const NEEDS_ID = 'expires needs an id: the reservation then has a name.'

/** The options of an estimate without a name. */
export interface Unnamed {
  /** Makes it a reservation with a name. */
  readonly id?: never
  /** Needs `id`. */
  readonly expires?: never
}

/** The options that make an estimate a reservation with a name. */
export interface Naming {
  /**
   * The name of the reservation. A key's reservations have different names: the same name again charges
   * nothing, and the answer has `repeated: true`. An estimate of 0 charges nothing, and has the name too.
   * Prefix, key and id may have about 1,000 bytes together, of which the id counts twice.
   */
  readonly id: string
  /**
   * How long the work may take. After that, `settleExpired` may end the reservation. Until it is settled it
   * stays open, and its name is remembered for a day from its end, or from the settlement if that is later.
   */
  readonly expires: Duration
}

/** Options of an estimate without a name. */
export interface PlainReserveOptions extends Omit<LimitOptions, 'force'>, Unnamed {}

/** Options of an estimate with a name. */
export interface NamedReserveOptions extends Omit<LimitOptions, 'force' | 'once'>, Naming {
  /** A name is charged once anyway. */
  readonly once?: never
}

/** Options of `reserveAll`. */
export type ReserveAllOptions = TxOptions & EitherName

/** Options of `spend` for a cost that is known. */
export interface PlainSpendOptions extends Shared, OnceOptions, Unnamed {}

/** Options of `spend` for an estimate with a name. */
export interface NamedSpendOptions extends Shared, Naming {
  /** A name is charged once anyway. */
  readonly once?: never
}

/** Options of `spend`. */
export type SpendOptions = PlainSpendOptions | NamedSpendOptions

interface Shared extends TxOptions {
  /** The units to take from the limits together. 0 only looks. Whole if one of them counts whole units. */
  readonly rate: number
  /**
   * The least that is worth granting. If they have less than `rate` together, but at least this, the call takes
   * all that they have, and `granted` says how much that is. Default: `rate`.
   */
  readonly atLeast?: number | undefined
}

/** Options of `reserve`. */
export type ReserveOptions = PlainReserveOptions | NamedReserveOptions

/** A name is charged once anyway. */
type EitherName = (OnceOptions & Unnamed) | (Naming & { readonly once?: never })
