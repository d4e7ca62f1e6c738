import { type Answered, AnswerTo, denialUntil } from '../kernel/answers/answer.ts'
import { behindBlock, blockedUntilOf } from '../kernel/answers/capacity.ts'
import { paidWith } from '../kernel/answers/outcome.ts'
import type { Denied, LimitResult } from '../kernel/answers/results.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { watched } from '../kernel/engine/layers.ts'
import type { Report } from '../kernel/engine/watch.ts'
import { own, RatelimitError } from '../kernel/errors.ts'
import { blockedUntil, withoutRow } from '../kernel/lists/combined-calls.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { shareOf } from '../kernel/lists/parts.ts'
import { callsOf } from '../kernel/lists/requests.ts'
import type { Group } from '../kernel/lists/sending.ts'
import { type Source, spareOf } from '../kernel/lists/shares.ts'
import type { Requested } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Decision } from '../kernel/store/call.ts'
import { type Opening, remember } from './charged.ts'
import { estimateOf, namingOf } from './estimate.ts'
import type { PaidByFunds } from './funds.ts'
import { inMemory, OF_ANOTHER_CALL } from './in-memory.ts'
import { checkNames, notesOf, openingsOf, settleOf } from './named.ts'
import { type Naming, type SpendOptions, spendRequest } from './options.ts'
import { type Payer, type SentPayer, type SentPayers, sharesIn } from './send-payers.ts'
import type { CommitSpentOptions, SettleAllOptions } from './settle-options.ts'
import * as SETTLING from './settle-options.ts'
import { msUntilEnough } from './shares.ts'
import { withFunds } from './with-funds.ts'

/** The answer of `spend`. */
export type Spent = SpentAnswer & (PaidSpending | Unpaid)

interface SpentAnswer {
  /** How much each limit paid, in the order of the requests; 0 after a denial. */
  readonly granted: readonly number[]
  /**
   * The answer of each limit for its share of the rate. After a denial, each shows the present state. If a key
   * is blocked, its answer is then a denial with `blockedUntil`.
   */
  readonly results: readonly LimitResult[]
  /** Milliseconds until the limits together have enough; 0 after success, `Infinity` if never. */
  readonly retryAfter: number
  /**
   * Gives everything back, as `commit(0)` does. After a denial, and after a call that was repeated with `once`,
   * it does nothing.
   */
  release(options?: SettleAllOptions): Promise<SettledSpending>
}

interface PaidSpending {
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
   * name it settles the estimate of the first call.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`, and the errors of `limitAll`.
   */
  commit(actual: number, options?: CommitSpentOptions): Promise<SettledSpending>
}

interface Unpaid {
  /** The limits together had too little. Nothing was taken. */
  readonly success: false
}

/** The answer of the `commit` and the `release` of `spend`. */
export interface SettledSpending {
  /**
   * How much each limit has paid in the end, in the order of the requests. Together that is the actual cost, or
   * more if a window that paid is over, because it gives nothing back.
   */
  readonly granted: readonly number[]
  /** The answer of each limit. `returned` is how much it got back. */
  readonly results: readonly LimitResult[]
  /**
   * With a name: it was settled before with the same cost. Then nothing has changed, and `granted` has only
   * zeros.
   */
  readonly repeated?: true
}

/** Takes one rate from several limits in their order, or takes nothing. */
export async function spendFrom(requests: readonly Requested[], options: SpendOptions): Promise<Spent> {
  const calls = await callsOf(requests, spendRequest, options.rate)
  return await own(watched(calls, options.tx, () => spendTogether(calls, options), spentReports))
}

/** The share of each limit. A denial is reported for all of them, because they deny only together. */
function spentReports({ success, granted, results, retryAfter }: Spent): Report[] {
  return results.map((answer, place) => {
    const { limit, remaining, reset } = answer
    return success
      ? { answer, rate: granted[place] }
      : { answer: { success, limit, remaining, reset, retryAfter } }
  })
}

/** @throws RatelimitError `INVALID_RATE`, `INVALID_OPTION` */
function checkSpending(calls: readonly Pick<LimiterCall, 'checker'>[], options: SpendOptions): void {
  const { rate, atLeast } = options
  // Untyped callers may leave the rate out, or give something else than a number.
  if (!Number.isFinite(rate) || rate < 0) {
    throw new RatelimitError('INVALID_RATE', 'The rate of spend must be a number of 0 or more.')
  }
  // Of less, nothing would be enough.
  const isLeast =
    atLeast === undefined ||
    (Number.isFinite(atLeast) && atLeast <= rate && spareOf({ rate, least: atLeast }) < rate)
  if (!isLeast) {
    throw new RatelimitError(
      'INVALID_RATE',
      'atLeast must be a number above 0 that makes a difference to the rate, and not above it.',
    )
  }
  const isEnforced = calls.every(({ checker }) => !checker.terms.reporting.dryRun)
  checkOption(
    isEnforced,
    'spend cannot be combined with dryRun. The limits deny together, so none can be tried by itself.',
  )
}

async function spendTogether(calls: readonly LimiterCall[], options: SpendOptions): Promise<Spent> {
  checkSpending(calls, options)
  const { rate, atLeast: least = rate, tx, once } = options
  const mayBeBlocked = calls.some(
    ({ checker, call }) =>
      checker.terms.gate !== undefined || call.limiter.algorithm.numbers.block !== undefined,
  )
  const name = namingOf(options)
  const openings = name && (await openingsFor(calls, name))
  const ids = once && [await idCall(once, calls)]
  const as = openings && 'reserve'
  const find = ({ funds }: PaidByFunds, at: At) =>
    funds.take({ rate, least, lacking: 'left to others', mayBeBlocked, as }, at)
  const asked = openings?.map(({ each }) => each) ?? calls
  const notes = openings && ((payers: readonly Payer[]) => notesOf(openings, payers))
  const sent = await withFunds(asked, find, tx, { ids, notes, shared: { rate, least } })
  if (openings) checkNames(sent)
  return spentOf(sent, { rate, least }, openings, tx)
}

/** The estimates of a call with a name. */
async function openingsFor(calls: readonly LimiterCall[], name: Naming): Promise<readonly Opening[]> {
  const unlimited = calls.filter(({ call }) => !call.limiter.stored)
  checkOption(unlimited.length < 2, 'With an id, at most one of the limits can be unlimited.')
  return openingsOf(calls.map(estimateOf), name, true)
}

async function spentOf(
  sent: SentPayers,
  { rate, least }: Pick<Group, 'rate' | 'least'>,
  openings: readonly Opening[] | undefined,
  tx: Database | undefined,
): Promise<Spent> {
  const { payers, status } = sent
  const isDenied = status === 'not charged'
  const isRepeated = status === 'repeated'
  const shares = status === 'charged' ? sharesIn(rate, payers) : undefined
  const granted = shares ?? payers.map(() => 0)
  const answered = payers.map((payer, place): Answered => {
    const { call, checker } = payer.call
    if (payer.purse) {
      const until = isDenied ? blockedUntil(sent.asked, sent.found, payer.call) : undefined
      return payer.purse.answer(payer.decisions, shares ? 'charged' : 'not charged', until)
    }
    const blocked = isDenied ? denialOfBlocked(payer, sent) : undefined
    if (blocked) return { answer: blocked, paid: paidWith(0) }
    const outcome = shareOf(call, snapshotOf(payer, sent), granted[place] ?? 0)
    return new AnswerTo(outcome, checker.terms.reporting)
  })
  const results = answered.map(({ answer }) => answer)
  if (openings && shares) remember(openings, answered, sent)
  const settleCharged = () => {
    if (openings && !isDenied) return settleOf(openings, isRepeated, tx)
    const calls = payers.map(({ call }) => call)
    return shares ? inMemory(calls, answered, tx, false) : OF_ANOTHER_CALL
  }
  const settle = await settleCharged()
  const commit: PaidSpending['commit'] = async (actual, given = {}) => {
    checkOptions(given, SETTLING.commitSpent)
    const { tx: at, limiters, debt = 'last' } = given
    return await own(settle({ costs: { total: actual, debt }, limiters }, at))
  }
  const release = async (given: SettleAllOptions = {}) => {
    checkOptions(given, SETTLING.settleAll)
    return settle === OF_ANOTHER_CALL ? { granted, results } : commit(0, given)
  }
  if (isDenied) return { granted, results, success: false, retryAfter: retryAfterOf(sent, least), release }
  const spent = { granted, results, success: true, retryAfter: 0, commit, release } as const
  return isRepeated ? { ...spent, repeated: true } : spent
}

/** Milliseconds until the limits together have the least, after all blocks. */
function retryAfterOf(sent: SentPayers, least: number): number {
  const { payers, asked, found } = sent
  const blocks = payers.map(({ call }) => blockedUntil(asked, found, call) ?? 0)
  const sources = payers.flatMap((payer) => sourcesOf(payer, sent))
  return msUntilEnough(sources, least, Math.max(...blocks))
}

/** The row of a limit as it was found, or the state of a limit without a row. */
function snapshotOf({ call, decisions }: SentPayer, { asked, found }: SentPayers): Decision {
  return decisions[0] ?? withoutRow(asked, found.looks, call)
}

/** The denial of a limit whose key is blocked. Undefined if it is not. */
function denialOfBlocked(payer: SentPayer, sent: SentPayers): Denied | undefined {
  const { limiter } = payer.call.call
  const snapshot = snapshotOf(payer, sent)
  const byGate = blockedUntil(sent.asked, sent.found, payer.call)
  const until = Math.max(byGate ?? 0, blockedUntilOf(limiter, snapshot) ?? 0)
  return until > 0 ? behindBlock(denialUntil(limiter, snapshot, until), until) : undefined
}

/** What a payer has to pay with. */
function sourcesOf(payer: SentPayer, sent: SentPayers): Source[] {
  const { call, purse, rows, decisions } = payer
  if (!purse) return [{ call: call.call, snapshot: snapshotOf(payer, sent) }]
  const taking = rows.map(({ call: own, pays, endsAt }, place) => {
    return { call: own, snapshot: decisions[place] as Decision, pays, endsAt }
  })
  return [...taking, ...(purse.others?.() ?? [])]
}
