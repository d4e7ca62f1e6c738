import type { NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { tx } from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { wordOf } from '../kernel/options/checks.ts'
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

// The options of each call, with their checks, as in `call-table.ts`. This file is loaded on first use.

export const settleAll: NamesOf<SettleAllOptions> = { ...tx, limiters: checkList }
export const commitSpent: NamesOf<CommitSpentOptions> = { ...settleAll, debt: wordOf('first', 'last') }
export const settle: NamesOf<SettleOptions> = { ...tx, debt: wordOf('first', 'last'), actual: true }
export const reservation: NamesOf<ReservationName> = { key: true, id: true }

function checkList(value: unknown, name: string): void {
  checkOption(Array.isArray(value), `${name} must be a list.`)
}
