import { answerOf, type Outcome, type Payment, paymentOf, refundableUntilOf } from '../check/answer.ts'
import { isRequest, type LimiterCall, unlimitedOutcome } from '../check/checker.ts'
import type { LimitResult } from '../check/results.ts'
import { type Told, watch } from '../check/watch.ts'
import { TX_NAMES } from '../config.ts'
import type { Database } from '../database/database.ts'
import { RatelimitError } from '../errors.ts'
import { checkOptions } from '../options.ts'
import { checkOption, purposeOf } from '../validate.ts'
import { addUp, type RowRequest } from './add-up.ts'
import { adjustAll } from './adjust-all.ts'
import {
  BEYOND_REACH,
  type Decisions,
  found,
  type Looks,
  lockAndLook,
  type takeAllOrNone,
  takeFrom,
} from './all-or-nothing.ts'
import { Once } from './once.ts'
import { msUntilEnough, type Source, sharesOf } from './shares.ts'
import { chargesOf, type Deciding, decideAlone, followUpAll, together } from './together.ts'

/** The answer of `Ratelimit.spend`. */
export interface Spent {
  /** All of the rate was taken. */
  readonly success: boolean
  /** What each limit gave, in the order of the requests; nothing after a denial. */
  readonly granted: readonly number[]
  /** The answer of each limit to what was asked of it. After a denial each says what it has. */
  readonly results: readonly LimitResult[]
  /** Milliseconds from now until the limits together have the rate; 0 if they had, `Infinity` if never. */
  readonly retryAfter: number
  /**
   * Gives everything back to the windows that paid, in one transaction: its own, or `tx`. Does nothing after a
   * denial. Says how much each limit got back, in the order of the requests: 0 after its window.
   *
   * @throws RatelimitError `ALREADY_SETTLED`; and what `Ratelimit.limitAll` throws. It may be called again
   * after an error that says that nothing was charged, and after a rollback of `tx`. It cannot see a rollback
   * to a savepoint: until all of the transaction is rolled back, another call is refused.
   */
  release(options?: { readonly tx?: Database | undefined }): Promise<readonly number[]>
}

/** Takes one rate from several limits, the first first, or takes nothing. */
export async function spend(
  calls: readonly LimiterCall[],
  rate: number,
  tx: Database | undefined,
): Promise<Spent> {
  const watched = calls.map(({ checker, call }) => checker.watched(call, tx))
  return watch(watched, spendFrom(calls, rate, tx), toldOf)
}

/** What each limit gave of the rate; or that all of them denied it, as none does by itself. */
function toldOf({ success, granted, results, retryAfter }: Spent): Told[] {
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
): Promise<Spent> {
  // Untyped callers may leave it out, or give what is no number.
  if (!Number.isFinite(rate) || rate <= 0) {
    throw new RatelimitError('INVALID_RATE', 'What is spent is a rate above 0.')
  }
  const isEnforced = calls.every(({ checker }) => !checker.config.reporting.dryRun)
  checkOption(isEnforced, 'spend needs limits that are enforced, not a dryRun.')
  const { checkers, home, joined } = together(calls, tx)
  const charges = chargesOf(calls)
  const rowOf = addUp(charges)
  const rows = [...new Set(rowOf.values())]
  checkOption(rows.length === charges.length, 'Two of the requests are for one row.')

  let outcome: Outcomes = {
    sources: [],
    shares: undefined,
    decisions: { looks: new Map(), taken: new Map() },
  }
  const sourcesIn = (looks: Looks) => {
    const waiting = [...rows]
    return calls.map(({ checker, call }): Source => {
      if (!isRequest(call)) return { call, snapshot: unlimitedOutcome(call, checker.clockMs()).decision }
      return { call, snapshot: found(looks, waiting.shift() as RowRequest) }
    })
  }
  const deny: Deciding['deny'] = (_, looks) => {
    const sources = sourcesIn(looks)
    outcome = { ...outcome, sources }
    return sharesOf(sources, rate) === undefined
  }
  const take: typeof takeAllOrNone = async (connection, all, commit, beforeTaking) => {
    const { looks, inserted } = await lockAndLook(connection, all, commit)
    beforeTaking?.()
    const sources = sourcesIn(looks)
    const shares = sharesOf(sources, rate)
    const wanted = (shares ?? []).filter((_, place) => isStored(calls[place]))
    // If there is too little, more than any limit is asked for, so that nothing is taken.
    const asked = all.map((row, place) => withRate(row, shares ? (wanted[place] ?? 0) : BEYOND_REACH))
    const seen = new Map(asked.map((row, place) => [row, found(looks, all[place] as RowRequest)]))
    const decisions = await takeFrom(connection, asked, { looks: seen, inserted })
    outcome = { sources, shares, decisions }
    return decisions
  }
  const followUp = () => followUpAll(calls)
  try {
    if (joined) await take(joined, rows, 'as the session')
    else if (rows.length > 0) await decideAlone(checkers, rows, { deny, take }, followUp)
    else await take(home, rows, 'as the session')
  } finally {
    followUp()
  }
  return spentOf(calls, rate, outcome, tx)
}

/** What was found, and what was taken. */
interface Outcomes {
  readonly sources: readonly Source[]
  readonly shares: readonly number[] | undefined
  readonly decisions: Decisions
}

function isStored(call: LimiterCall | undefined): boolean {
  return call !== undefined && isRequest(call.call)
}

function withRate(row: RowRequest, rate: number): RowRequest {
  return { ...row, rate, needed: rate, purpose: purposeOf(rate) }
}

function spentOf(
  calls: readonly LimiterCall[],
  rate: number,
  { sources, shares, decisions }: Outcomes,
  spentIn: Database | undefined,
): Spent {
  const taken = [...decisions.taken.entries()]
  const outcomes = calls.map(({ call }, place): Outcome => {
    const share = shares?.[place] ?? 0
    const asked = { ...call, rate: share, purpose: purposeOf(share) }
    const decision = taken.find(([row]) => isRow(row, calls[place] as LimiterCall))?.[1]
    // A denial makes the row of a bucket that has to fill, so the look is not of a new one any more.
    const looked = { ...(sources[place] as Source).snapshot, granted: 1, isNew: false }
    return { call: asked, decision: decision ?? looked, place: 0 }
  })
  const results = outcomes.map((each, place) =>
    answerOf(each, (calls[place] as LimiterCall).checker.config.reporting),
  )
  const granted = calls.map((_, place) => shares?.[place] ?? 0)
  const [{ checker }] = calls as readonly [LimiterCall]
  const releasing = new Once(checker.where(spentIn).db)
  const release: Spent['release'] = async (options = {}) => {
    checkOptions(options, TX_NAMES)
    const { tx } = options
    if (!shares) return granted
    return releasing.run(checker.where(tx), () => giveBack(calls, outcomes.map(paymentOf), results, tx))
  }
  const retryAfter = shares ? 0 : msUntilEnough(sources, rate)
  return { success: shares !== undefined, granted, results, retryAfter, release }
}

/** A limiter has a namespace object of its own, so its table need not be compared. */
function isRow(row: RowRequest, { checker, call }: LimiterCall): boolean {
  return row.key === call.key && row.namespace === checker.config.namespace
}

/** Gives back what was paid, to the windows that paid. Says how much each got. */
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
