import { answerOf, type Outcome, type Payment, paymentOf, refundableUntilOf } from '../check/answer.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { LimitResult } from '../check/results.ts'
import type { Report } from '../check/watch.ts'
import { type Once as OnceOption, TX_NAMES } from '../config.ts'
import type { Database } from '../database/database.ts'
import { RatelimitError } from '../errors.ts'
import { checkOptions } from '../options.ts'
import type { Decision } from '../runtime/call.ts'
import { checkOption, purposeOf } from '../validate.ts'
import type { RowRequest } from './add-up.ts'
import { adjustAll } from './adjust-all.ts'
import type { Decisions } from './all-or-nothing.ts'
import { found } from './enough.ts'
import { idCall } from './ids.ts'
import { Once } from './once.ts'
import { msUntilEnough, type Source, sharesOf } from './shares.ts'
import { type Asked, askedOf, blockedUntil, isRepeated, takeTogether, watchAll } from './together.ts'

/** The answer of `Ratelimit.spend`. */
export interface Spent {
  /** The whole rate was taken. */
  readonly success: boolean
  /** How much each limit paid, in the order of the requests; 0 after a denial. */
  readonly granted: readonly number[]
  /** The answer of each limit for its share of the rate. After a denial, each shows the present state. */
  readonly results: readonly LimitResult[]
  /** Milliseconds until the limits together have the rate; 0 after success, `Infinity` if never. */
  readonly retryAfter: number
  /** With `once`: the id was used before, so this call has charged nothing. */
  readonly repeated?: true
  /**
   * Gives everything back to the windows that paid, in one statement if the rows exist. After a denial, and
   * after a repeated call, it does nothing.
   *
   * It can be called again after an error that says that nothing was charged, and after a rollback of `tx`. It
   * does not notice a rollback to a savepoint: another call is refused until the whole transaction is rolled
   * back.
   *
   * @returns How much each limit got back, in the order of the requests; 0 if its window is over.
   * @throws RatelimitError `ALREADY_SETTLED`, and the errors of `Ratelimit.limitAll`.
   */
  release(options?: { readonly tx?: Database | undefined }): Promise<readonly number[]>
}

/** Takes one rate from several limits in their order, or takes nothing. */
export async function spend(
  calls: readonly LimiterCall[],
  rate: number,
  tx: Database | undefined,
  once?: OnceOption,
): Promise<Spent> {
  return watchAll(calls, tx, spendFrom(calls, rate, tx, once), reportsOf)
}

/** The share of each limit. A denial is reported for all of them, because they deny only together. */
function reportsOf({ success, granted, results, retryAfter }: Spent): Report[] {
  return results.map((answer, place) => {
    const { limit, remaining, reset } = answer
    return success
      ? { answer, rate: granted[place] }
      : { answer: { success, limit, remaining, reset, retryAfter } }
  })
}

async function spendFrom(
  calls: readonly LimiterCall[],
  rate: number,
  tx: Database | undefined,
  once: OnceOption | undefined,
): Promise<Spent> {
  // Untyped callers may leave the rate out, or give something else than a number.
  if (!Number.isFinite(rate) || rate <= 0) {
    throw new RatelimitError('INVALID_RATE', 'The rate of spend must be a number above 0.')
  }
  const isEnforced = calls.every(({ checker }) => !checker.config.reporting.dryRun)
  checkOption(isEnforced, 'spend cannot use a limiter with dryRun: true.')
  const asked = askedOf(calls, tx, await idCall(once, calls))
  const order = calls.map((each) => asked.rowOf.get(each))
  const rows = order.filter((row) => row !== undefined)
  checkOption(new Set(rows).size === rows.length, 'Two of the requests are for one row.')
  const decisions = await takeTogether(asked, { rate, order })
  return spentOf({ asked, rate, order, tx }, decisions)
}

/** The limits to spend from, in the order of the requests. */
interface Spending {
  readonly asked: Asked
  readonly rate: number
  readonly order: readonly (RowRequest | undefined)[]
  readonly tx: Database | undefined
}

function spentOf({ asked, rate, order, tx: spentIn }: Spending, decisions: Decisions): Spent {
  const { calls, unlimited } = asked
  const { looks, taken } = decisions
  const sources = calls.map((each, place): Source & { readonly snapshot: Decision } => {
    const row = order[place]
    return { call: each.call, snapshot: row ? found(looks, row) : found(unlimited, each).decision }
  })
  const shares = taken.size === looks.size ? sharesOf(sources, rate) : undefined
  const outcomes = sources.map(({ call, snapshot }, place): Outcome => {
    const share = shares?.[place] ?? 0
    const asked = { ...call, rate: share, purpose: purposeOf(share) }
    // A denial inserts the row of a bucket that has to fill, so the bucket is not new any more.
    return { call: asked, decision: { ...snapshot, granted: 1, isNew: false }, place: 0 }
  })
  const results = outcomes.map((each, place) =>
    answerOf(each, (calls[place] as LimiterCall).checker.config.reporting),
  )
  const granted = calls.map((_, place) => shares?.[place] ?? 0)
  const [{ checker }] = calls as readonly [LimiterCall]
  const releasing = new Once(checker, spentIn)
  const release: Spent['release'] = async (options = {}) => {
    checkOptions(options, TX_NAMES)
    const { tx } = options
    if (!shares) return granted
    return releasing.run(tx, () => giveBack(calls, outcomes.map(paymentOf), results, tx))
  }
  if (isRepeated(asked, decisions)) {
    return { success: true, granted, results, retryAfter: 0, repeated: true, release }
  }
  const blocks = calls.map((each, place) => {
    const { now } = (sources[place] as (typeof sources)[number]).snapshot
    return (blockedUntil(asked, decisions, each) ?? now) - now
  })
  const retryAfter = shares ? 0 : Math.max(msUntilEnough(sources, rate), ...blocks)
  return { success: shares !== undefined, granted, results, retryAfter, release }
}

/** Gives the payments back to the windows that paid. Returns how much each got. */
async function giveBack(
  calls: readonly LimiterCall[],
  paid: readonly Payment[],
  results: readonly LimitResult[],
  tx: Database | undefined,
): Promise<readonly number[]> {
  const refunds = calls.map(({ checker, call }, place): LimiterCall => {
    const { rate, windowStart } = paid[place] as Payment
    const refundableUntil = refundableUntilOf(call.limiter, results[place] as LimitResult)
    const given = { rate: -rate, paidWindowStart: windowStart, refundableUntil }
    return { checker, call: { ...call, ...given, purpose: 'adjust' } }
  })
  const paying = refunds.filter(({ call }) => call.rate < 0)
  const adjusted = await adjustAll(paying, tx)
  return refunds.map((refund) => adjusted[paying.indexOf(refund)]?.returned ?? 0)
}
