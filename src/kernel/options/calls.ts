import type { Database } from '../database/database.ts'
import type { Duration } from '../duration.ts'
import type { Limiter } from '../limits/algorithm.ts'

/** Options of a look or a check. */
export interface CallOptions {
  /** Your transaction, to commit or roll back the call with it. Default: the limiter's `db`. */
  readonly tx?: Database | undefined
  /** Another limit for this call, such as a customer's plan. Default: the limiter's. */
  readonly limiter?: Limiter | undefined
}

/** The option of calls that join your transaction. */
export type TxOptions = Pick<CallOptions, 'tx'>

/** An event that is charged once, however often its call is repeated. */
export interface Once {
  /**
   * The unique id of the event, such as a webhook's. All keys of the limiter share the ids, so put the customer
   * into an id that the customer chooses. Id and prefix may have about 1,000 bytes together.
   */
  readonly id: string
  /** How long the id is remembered, from the call that was charged. Its row is swept afterwards. */
  readonly for: Duration
}

/** The option of calls that can be repeated safely. */
export interface OnceOptions {
  /**
   * Charges an event once. If its id was used before, nothing is charged, and the answer has `repeated: true`.
   * A denial, a failure, a rollback and a rate of 0 do not use up the id. Default: each call is charged.
   */
  readonly once?: Once | undefined
}

/** Options of `limitAll`. */
export type AllOptions = OnceOptions & (AtOnceOptions | PatientOptions)

interface AtOnceOptions extends TxOptions {
  readonly wait?: undefined
  readonly signal?: undefined
}

/** Options of a call that waits until it is allowed. In a transaction it would hold locks in the meantime. */
export interface PatientOptions {
  /** How long to wait: milliseconds, or a string like `'30s'`. 0 tries once. Default: it does not wait. */
  readonly wait: Duration
  /** Ends the wait: the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  readonly tx?: undefined
}

/** One of the requests of a call for several limits. */
export interface Requested {
  readonly ratelimit: { readonly prefix: string }
  readonly key: string
  readonly rate?: number | undefined
  readonly limiter?: Limiter | undefined
  readonly force?: boolean | undefined
  readonly atLeast?: number | undefined
}

/** Options of a check. */
export interface LimitOptions extends CallOptions, OnceOptions {
  /** The cost of the call. 0 looks, a negative rate gives back. Whole for windows. Default: `1`. */
  readonly rate?: number | undefined
  /**
   * Consumes even if too little is left, for a cost that is known only afterwards. Refills or the window's end
   * pay back the debt. Default: `false`.
   */
  readonly force?: boolean | undefined
  /**
   * The least that is worth granting. If less than `rate` is left, but at least this, the call takes all that
   * is left, and `granted` in the answer says how much. From 0.000001 to `rate`; whole for windows. Default:
   * the whole rate or nothing.
   */
  readonly atLeast?: number | undefined
}

/** Options of a refund to the window that paid. */
export interface RefundOptions extends CallOptions, OnceOptions {
  /** The amount to give back, as a number below 0. */
  readonly rate: number
  /**
   * The `start` of the charge's answer, in Unix milliseconds. Only the window that began then gets the refund.
   * Nothing is given back after its end, or under a limit without windows. Undefined for a charge of a bucket.
   */
  readonly start: number | undefined
}

/** Options of `blockUntilReady`. */
export interface BlockOptions extends Pick<LimitOptions, 'rate' | 'atLeast' | 'limiter' | 'once'> {
  /** Ends the wait: the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}
