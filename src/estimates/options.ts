import type { NamesOf } from '../kernel/base/check-options.ts'
import type { Duration } from '../kernel/duration.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { LimitOptions, OnceOptions, Requested, TxOptions } from '../kernel/options/calls.ts'
import { ofQuota } from '../kernel/options/checks.ts'

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

// The options of each call, with their checks, as in `call-table.ts`.

export const reserveAll: NamesOf<ReserveAllOptions> = {
  ...{ ...CALLS.tx, ...CALLS.once, id: true, expires: true },
}
export const spend: NamesOf<SpendOptions> = { ...CALLS.charge, ...reserveAll }
export const reserve: NamesOf<ReserveOptions> = { ...CALLS.call, ...spend }
export const plainReserve: NamesOf<ReserveOptions> = {
  ...{ ...CALLS.call, ...CALLS.charge, id: ofQuota, expires: ofQuota },
}

export const spendRequest: NamesOf<Omit<Requested, 'force' | 'rate' | 'atLeast'>> = {
  ...{ ratelimit: true, key: true, limiter: true },
}
export const reserveRequest: NamesOf<Omit<Requested, 'force'>> = {
  ...{ ...spendRequest, rate: true, atLeast: true },
}
