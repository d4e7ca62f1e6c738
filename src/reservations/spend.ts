import { answerOf } from '../answers/answer.ts'
import { type Outcome, type Payment, paymentOf } from '../answers/outcome.ts'
import type { LimitResult } from '../answers/results.ts'
import { checkOptions } from '../base/check-options.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Report } from '../check/watch.ts'
import type { Database } from '../database/database.ts'
import { RatelimitError } from '../errors.ts'
import type { SpendOptions } from '../options/reserve.ts'
import { checkLimiter, checkOption, purposeOf } from '../options/validate.ts'
import type { Call, Decision } from '../runtime/call.ts'
import type { RowRequest } from '../several/add-up.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { found, paidIn } from '../several/enough.ts'
import { idCall } from '../several/ids.ts'
import { Once, refuseRepeated } from '../several/once.ts'
import type { Group } from '../several/sending.ts'
import { msUntilEnough, type Source } from '../several/shares.ts'
import { type Asked, askedOf, blockedUntil, isRepeated, takeTogether, watchAll } from '../several/together.ts'
import { remember } from './charged.ts'
import { type NamedSpending, openSpending, settlingByName } from './named-spending.ts'
import { SETTLE_ALL_NAMES, type SettleAllOptions } from './reserve-all.ts'
import {
  COMMIT_NAMES,
  type CommitSpentOptions,
  type Expense,
  giveBack,
  type SettledSpending,
  type Settling,
  sumOf,
  takeMore,
} from './settle-spent.ts'
import { checkActual } from './settlement.ts'

export { settleByName } from './named-spending.ts'

/** The answer of `Ratelimit.spend`. */
export type Spent = SpentAnswer & (Paid | Unpaid)

interface SpentAnswer {
  /** How much each limit paid, in the order of the requests; 0 after a denial. */
  readonly granted: readonly number[]
  /** The answer of each limit for its share of the rate. After a denial, each shows the present state. */
  readonly results: readonly LimitResult[]
  /** Milliseconds until the limits together have enough; 0 after success, `Infinity` if never. */
  readonly retryAfter: number
  /**
   * Gives everything back, as `commit(0)` does. After a denial, and after a call that was repeated with `once`,
   * it does nothing.
   */
  release(options?: SettleAllOptions): Promise<SettledSpending>
}

interface Paid {
  /** The whole rate was taken; with `atLeast`, at least that. */
  readonly success: true
  /** The id, of `once` or of the name, was used before, so this call has charged nothing. */
  readonly repeated?: true
  /**
   * Settles the actual cost, in one statement if the rows exist. If the cost is above what was taken, the rest
   * is taken from the limits in their order. If they lack something, it becomes a debt of the one that `debt`
   * names. If the cost is below, the last limit gets its part back first, in the window that paid. It is never
   * denied.
   *
   * During an outage it always throws, so that the cost is not lost; `onError` does not apply. Without
   * `limiters` a row that now has another algorithm or period is refused with `OTHER_PLAN`.
   *
   * It can be called again after an error that says that nothing was charged, and after a rollback of `tx`. It
   * does not notice a rollback to a savepoint: another call is refused until the whole transaction is rolled
   * back. After a call that was repeated with `once` it throws, because this call has charged nothing. With a
   * name it settles the estimate of the first call, and a cost above the estimate needs a driver with
   * interactive transactions.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`, and the errors of `Ratelimit.limitAll`.
   */
  commit(actual: number, options?: CommitSpentOptions): Promise<SettledSpending>
}

interface Unpaid {
  /** The limits together had too little. Nothing was taken. */
  readonly success: false
}

/** Takes one rate from several limits in their order, or takes nothing. */
export async function spend(calls: readonly LimiterCall[], options: SpendOptions): Promise<Spent> {
  return watchAll(calls, options.tx, spendFrom(calls, options), reportsOf)
}

/** The share of each limit. A denial is reported for all of them, because they deny only together. */
export function reportsOf({ success, granted, results, retryAfter }: Spent): Report[] {
  return results.map((answer, place) => {
    const { limit, remaining, reset } = answer
    return success
      ? { answer, rate: granted[place] }
      : { answer: { success, limit, remaining, reset, retryAfter } }
  })
}

/** @throws RatelimitError `INVALID_RATE`, `INVALID_OPTION` */
export function checkSpending(calls: readonly Pick<LimiterCall, 'checker'>[], options: SpendOptions): void {
  const { rate, atLeast = rate } = options
  // Untyped callers may leave the rate out, or give something else than a number.
  if (!Number.isFinite(rate) || rate <= 0) {
    throw new RatelimitError('INVALID_RATE', 'The rate of spend must be a number above 0.')
  }
  if (!Number.isFinite(atLeast) || atLeast <= 0 || atLeast > rate) {
    throw new RatelimitError('INVALID_RATE', 'atLeast must be a number above 0, and not above the rate.')
  }
  const isEnforced = calls.every(({ checker }) => !checker.config.reporting.dryRun)
  checkOption(isEnforced, 'spend cannot use a limiter with dryRun: true.')
}

async function spendFrom(calls: readonly LimiterCall[], options: SpendOptions): Promise<Spent> {
  checkSpending(calls, options)
  const { rate, atLeast = rate, tx, once } = options
  const named = await openSpending(calls, options)
  const asked = askedOf(named?.calls ?? calls, tx, await idCall(once, calls), ...(named?.openings ?? []))
  const group = { rate, least: atLeast, order: orderIn(asked, asked.calls) }
  const decisions = await takeTogether(asked, [group])
  return spentOf({ asked, group, named, tx }, decisions)
}

/**
 * The rows in the order in which they pay.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function orderIn({ rowOf }: Asked, calls: readonly LimiterCall[]): (RowRequest | undefined)[] {
  const order = calls.map((each) => rowOf.get(each))
  const rows = order.filter((row) => row !== undefined)
  checkOption(new Set(rows).size === rows.length, 'Two of the requests are for one row.')
  return order
}

/** The limits to spend from, in the order of the requests. */
interface Spending {
  readonly asked: Asked
  readonly group: Group
  readonly named: NamedSpending | undefined
  readonly tx: Database | undefined
}

function spentOf({ asked, group, named, tx: spentIn }: Spending, decisions: Decisions): Spent {
  const { calls, unlimited } = asked
  const { looks, isDone } = decisions
  const sources = calls.map((each, place): Source & { readonly snapshot: Decision } => {
    const row = group.order[place]
    return { call: each.call, snapshot: row ? found(looks, row) : found(unlimited, each).decision }
  })
  const shares = isDone ? paidIn(group, looks) : undefined
  const outcomes = sources.map(({ call, snapshot }, place) =>
    outcomeOf(call, snapshot, shares?.[place] ?? 0, named !== undefined),
  )
  const results = outcomes.map((each, place) =>
    answerOf(each, (calls[place] as LimiterCall).checker.config.reporting),
  )
  const granted = calls.map((_, place) => shares?.[place] ?? 0)
  const paid = outcomes.map(paymentOf)
  if (named && shares && !isRepeated(asked, decisions)) {
    const answered = results.map((answer, place) => ({ answer, paid: paid[place] as Payment }))
    remember(named, answered, asked, decisions)
  }
  const expense = { calls, granted, paid, results }
  const byName = named && settlingByName(named)
  const commit = committing({ calls, granted }, spentIn, {
    takeMore: (...settling) => takeMore(expense, ...settling),
    giveBack: (...settling) => giveBack(expense, ...settling),
  })
  return spentWith(
    { granted, results },
    {
      isRepeated: isRepeated(asked, decisions),
      commit: shares && (byName?.commit ?? commit),
      byName,
      wait: () => Math.max(msUntilEnough(sources, group.least), msBlocked(asked, decisions)),
    },
  )
}

/** Milliseconds until none of the keys is blocked. 0 if none is. */
export function msBlocked(asked: Asked, decisions: Decisions): number {
  const blocks = asked.calls.map((each) => {
    const until = blockedUntil(asked, decisions, each)
    return until === undefined ? 0 : until - found(decisions.looks, found(asked.gateOf, each)).now
  })
  return Math.max(0, ...blocks)
}

/** How a call was decided. */
interface Decided {
  readonly isRepeated: boolean
  /** Undefined if it was denied. */
  readonly commit: Paid['commit'] | undefined
  /** How the estimate of the name is settled, if it has one. */
  readonly byName?: (Pick<Spent, 'release'> & Pick<Paid, 'commit'>) | undefined
  /** Returns the milliseconds until there is enough. */
  readonly wait: () => number
}

/** The answer with what each limit has paid. */
export function spentWith(
  answer: Pick<SpentAnswer, 'granted' | 'results'>,
  { isRepeated, commit, byName, wait }: Decided,
): Spent {
  const release: Spent['release'] = async (options = {}) => {
    checkOptions(options, SETTLE_ALL_NAMES)
    return answer
  }
  if (isRepeated && byName) return { ...answer, success: true, retryAfter: 0, repeated: true, ...byName }
  if (isRepeated) {
    const refused = async () => refuseRepeated()
    return { ...answer, success: true, retryAfter: 0, repeated: true, commit: refused, release }
  }
  if (!commit) return { ...answer, success: false, retryAfter: wait(), release }
  return { ...answer, success: true, retryAfter: 0, commit, release: (options) => commit(0, options) }
}

/** The outcome of the call that has paid the share, or was charged it as an estimate. */
export function outcomeOf(call: Call, snapshot: Decision, share: number, isEstimate = false): Outcome {
  const asked = { ...call, rate: share, reserved: isEstimate ? share : 0, purpose: purposeOf(share) }
  // A denial inserts the row of a bucket that has to fill, so the bucket is not new any more.
  return { call: asked, decision: { ...snapshot, granted: 1, isNew: false }, place: 0 }
}

/** How what was spent is settled, by the actual cost. */
interface Settles {
  /** `debtor` is the place of the request that goes into debt. */
  takeMore(actual: number, debtor: number, settling: Settling): Promise<SettledSpending>
  giveBack(actual: number, settling: Settling): Promise<SettledSpending>
}

/** The `commit` of what was spent. */
export function committing(
  { calls, granted }: Pick<Expense, 'calls' | 'granted'>,
  spentIn: Database | undefined,
  settles: Settles,
): Paid['commit'] {
  const [{ checker }] = calls as readonly [LimiterCall]
  const settling = new Once(checker, spentIn)
  return async (actual, options = {}) => {
    checkOptions(options, COMMIT_NAMES)
    const { tx, limiters = [], debt = 'last' } = options
    checkOption(Array.isArray(limiters), 'limiters must be a list.')
    checkOption(debt === 'first' || debt === 'last', "debt must be 'first' or 'last'.")
    for (const [place, { call }] of calls.entries()) {
      const limiter = limiters[place] ?? call.limiter
      checkLimiter(limiter)
      checkActual(actual, limiter)
    }
    const debtor = debt === 'first' ? 0 : calls.length - 1
    return settling.run(tx, () =>
      actual > sumOf(granted)
        ? settles.takeMore(actual, debtor, { limiters, tx })
        : settles.giveBack(actual, { limiters, tx }),
    )
  }
}
