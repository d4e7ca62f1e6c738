import type { AnyCredits } from '../any-credits.ts'
import { inTurn } from '../estimates/in-turn.ts'
import { findExpired, type OpenEstimate, type OpenReservation } from '../estimates/read-open.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import { type Database, isTransaction } from '../kernel/database/database.ts'
import { calledOn, handleOf } from '../kernel/engine/handles.ts'
import { checkFunction, wordOf } from '../kernel/options/checks.ts'
import { checkOption, checkTakesLimiter } from '../kernel/options/validate.ts'
import { compareText } from '../kernel/sql/calls.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { checkAboveZero, type PlanOf } from '../shared/limiter-rows.ts'

/** Options of `settleExpired`. */
export interface SettleExpiredOptions {
  /** Your transaction, in which you can also write down what is returned. */
  readonly tx: Database
  /** Whether the estimates are given back, or stay charged as costs. */
  readonly as: 'release' | 'charge'
  /** The most reservations to end. Default: `100`. */
  readonly limit?: number
}

/** Options of `settleExpired`, for a `Ratelimit` with a limit for each key. */
export interface SettlePlansOptions extends SettleExpiredOptions {
  /**
   * The present limit of a key: its customer's plan. With `hashKeys` the argument is the hash. It is asked for
   * one key after the other, so it may use the transaction. Without it, reservations that were made with a
   * `limiter` are refused.
   */
  readonly limiterOf: PlanOf
}

const EXPIRED_NAMES: NamesOf<SettlePlansOptions> = {
  ...{ tx: true, as: true, limit: checkAboveZero, limiterOf: checkFunction },
}

/** A reservation that `settleExpired` has ended. */
export interface ExpiredReservation extends OpenReservation, Pick<Allowed, 'correction' | 'crossed'> {
  /** How much was given back: 0 if the window that paid is over, unless its `grace` time lasts. */
  readonly returned: number
}

const checkEnding = wordOf('release', 'charge')

const settling = /* @__PURE__ */ onFirstUse(() =>
  Promise.all([
    import('../estimates/in-rows.ts'),
    import('../estimates/open-estimates.ts'),
    import('../estimates/lock-rows.ts'),
  ]),
)

/**
 * Settles reservations with a name whose end has come, because their processes may have died, in your
 * transaction. It skips those that others are settling. Call it again until it returns fewer than `limit`.
 *
 * A process that is late finds the reservation settled: `settle` with another cost throws `ALREADY_SETTLED`.
 *
 * @param of The limiter, or the credits, whose reservations are ended.
 * @returns The ended reservations, in the order of their keys.
 * @throws RatelimitError before any SQL `INVALID_OPTION`, also without a transaction; then the errors of
 * `Ratelimit.settle`.
 *
 * @example
 * ```ts
 * import type { Credits } from 'drizzle-ratelimit/credits'
 * import { settleExpired } from 'drizzle-ratelimit/quota'
 * import { db } from './app.ts'
 *
 * declare const credits: Credits
 * await db.transaction(async (tx) => {
 *   for (const { key, id, rate } of await settleExpired(credits, { tx, as: 'release' })) {
 *     console.log(key, id, rate) // notify the customer with `tx`
 *   }
 * })
 * ```
 */
export function settleExpired(of: Ratelimit, options: SettlePlansOptions): Promise<ExpiredReservation[]>
/** The same with one limit for all keys, or for credits. */
export function settleExpired(
  of: Ratelimit | AnyCredits,
  options: SettleExpiredOptions,
): Promise<ExpiredReservation[]>
export async function settleExpired(
  of: Ratelimit | AnyCredits,
  options: SettleExpiredOptions & Partial<SettlePlansOptions>,
): Promise<ExpiredReservation[]> {
  checkOptions(options, EXPIRED_NAMES)
  const { tx, as, limit = 100, limiterOf } = options
  checkOption(isTransaction(tx), 'settleExpired needs tx, a transaction of Drizzle.')
  checkEnding(as, 'as')
  const handle = handleOf(of, 'Give a Quota, a Ratelimit or Credits of this version of the package.')
  const { checker } = handle
  if (limiterOf !== undefined) checkTakesLimiter(checker.terms.limiter)
  const connection = checker.where(tx)
  const found = await findExpired(connection, checker, limit)
  const [{ settleOpen }, { openOf }, { lockAll }] = await settling()
  const expired = await inTurn(found.toSorted(inOrder), async ({ row, key, id, opened }) => {
    const limiter = await limiterOf?.(key)
    const each = await calledOn(handle, key, { rate: 0, limiter })
    return { key, id, limiter, open: await openOf({ each, row, hasPlan: false }, opened, tx) }
  })
  const opens = expired.map(({ open }) => open)
  const rows = opens.flatMap((open) => open.rows)
  await lockAll(opens, rows, connection)
  const ended: ExpiredReservation[] = []
  for (const { key, id, limiter, open } of expired) {
    const { rate, endMs: expires } = open.opened
    const costs = { each: [as === 'release' ? 0 : rate] }
    const settled = await settleOpen([open], { costs, limiters: [limiter] }, tx)
    const [answer] = settled?.results ?? []
    if (!answer) continue
    const { returned = 0, correction, crossed } = answer
    ended.push({
      ...{ key, id, rate, expires, returned },
      ...(correction ? { correction } : {}),
      ...(crossed ? { crossed } : {}),
    })
  }
  return ended
}

function inOrder(one: OpenEstimate, other: OpenEstimate): number {
  return compareText(one.key, other.key) || compareText(one.id, other.id)
}
