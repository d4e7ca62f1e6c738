import type { AnyCredits } from '../any-credits.ts'
import type { NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { tx } from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkFunction, wordOf } from '../kernel/options/checks.ts'
import { checkOption } from '../kernel/options/validate.ts'

/** The name of a reservation. */
export interface ReservationName {
  /** The key that was given to `reserve`. */
  readonly key: string
  /** The `id` that was given to `reserve`. */
  readonly id: string
}

/** Options of `commit` and `release` of `reserveAll`. */
export interface SettleAllOptions {
  /** The transaction to settle in. Default: one of its own. */
  readonly tx?: Database | undefined
  /**
   * The present plans, in the order of the requests; undefined for those that have not changed. Default: the
   * plans of the reservations.
   */
  readonly limiters?: readonly (Limiter | undefined)[] | undefined
}

/** Options of the `commit` of `spend`. */
export interface CommitSpentOptions extends SettleAllOptions {
  /**
   * The request whose limit goes into debt if all of them together have too little. For a window the debt ends
   * with its period; for credits it stays. Default: `'last'`.
   */
  readonly debt?: 'first' | 'last' | undefined
}

/** Options of `settle`. */
export type SettleOptions = TxOptions &
  (
    | (Pick<CommitSpentOptions, 'debt'> & {
        /** The actual cost of what `spend` has taken; 0 gives everything back. */
        readonly actual: number
      })
    | {
        /** The actual costs of what `reserveAll` has charged, in the order of the requests. */
        readonly actual: readonly number[]
        readonly debt?: never
      }
  )

interface Ending {
  /** The limiter, or the credits, whose reservations are ended. */
  readonly ratelimit: { readonly prefix: string; readonly limiter: Limiter } | AnyCredits
  /** Whether the estimates are given back, or stay charged as costs. */
  readonly as: 'release' | 'charge'
  /** The most reservations to end. Default: `100`. */
  readonly limit?: number
}

interface EndingWithPlans extends Ending {
  readonly ratelimit: { readonly prefix: string; readonly limiter: Limiter }
  /**
   * The present limit of a key: its customer's plan. With `hashKeys` the argument is the hash. It is asked for
   * one key after the other, so it may use the transaction. Default: the limiter's; reservations that were made
   * with another `limiter` are then refused.
   */
  readonly limiterOf?: ((key: string) => Limiter | Promise<Limiter>) | undefined
}

interface EndingWithoutPlans extends Ending {
  /** Credits have no plans. */
  readonly limiterOf?: never
}

/** Options of `settleExpired`. */
export type SettleExpiredOptions = EndingWithPlans | EndingWithoutPlans

// The options of each call, with their checks, as in `call-table.ts`. This file is loaded on first use.

export const settleAll: NamesOf<SettleAllOptions> = { ...tx, limiters: checkList }
export const commitSpent: NamesOf<CommitSpentOptions> = { ...settleAll, debt: wordOf('first', 'last') }
export const settle: NamesOf<SettleOptions> = { ...tx, debt: wordOf('first', 'last'), actual: true }
export const reservation: NamesOf<ReservationName> = { key: true, id: true }
export const settleExpired: NamesOf<SettleExpiredOptions> = {
  ...{ ratelimit: true, as: true, limit: checkAboveZero, limiterOf: checkFunction },
}

function checkList(value: unknown, name: string): void {
  checkOption(Array.isArray(value), `${name} must be a list.`)
}

function checkAboveZero(value: unknown, name: string): void {
  checkOption(Number.isSafeInteger(value) && Number(value) > 0, `${name} must be a whole number above 0.`)
}
