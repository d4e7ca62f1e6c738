import { type Connection, connectionTo } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { inTransaction } from '../database/transaction.ts'
import type { Call } from '../runtime/call.ts'
import type { Commit } from '../statements/setting.ts'
import { checkOption } from '../validate.ts'
import { addUp, type Charge, isForced, type RowRequest } from './add-up.ts'
import { type Decisions, fits, found, partOf, takeAllOrNone } from './all-or-nothing.ts'
import { answerOf, type Outcome, paymentOf, type Reporting } from './answer.ts'
import { beside, type Stage } from './beside.ts'
import { timedOut } from './bounds.ts'
import { type Checker, isRequest, unlimitedOutcome } from './checker.ts'
import type { Answered, Degrading } from './degrading.ts'
import type { LimitAllResult } from './results.ts'

/** A valid call of a limiter. */
export interface LimiterCall {
  readonly checker: Checker
  readonly call: Call
}

/** The answer to calls of which all are consumed, or none is. */
export async function limitAll<Request>(
  requests: readonly Request[],
  calls: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<LimitAllResult<Request>> {
  return combined(requests, await decideAll(calls, tx))
}

/**
 * Decides all calls together: all are consumed, or none is. Gives their answers in their order, and what was
 * paid for each if all are allowed.
 *
 * @throws RatelimitError `INVALID_OPTION` for no calls, for limiters of different databases, and for a driver
 * without interactive transactions.
 */
export async function decideAll(
  calls: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<Answered[]> {
  const { watch } = await import('./watch.ts')
  const watched = calls.map(({ checker, call }) => checker.watched(call, tx))
  return watch(watched, answerTogether(calls, tx), (answered) => answered)
}

async function answerTogether(calls: readonly LimiterCall[], tx: Database | undefined): Promise<Answered[]> {
  const asked = askedOf(calls, tx)
  try {
    const answers = answersOf(asked, await takeTogether(asked))
    return answerAll(calls, () => answers.shift() as Answered)
  } catch (error) {
    // If one of the limiters throws errors, an answer of the others would be worth nothing.
    if (asked.joined || calls.some(({ checker }) => checker.config.degrading.onError === 'throw')) throw error
    const told = new Set<Degrading['onDegraded']>()
    const degraded = await Promise.all(
      asked.charges.map(({ checker, request }) => checker.degrade(error, request, told)),
    )
    return answerAll(calls, () => degraded.shift() as Answered)
  } finally {
    followUpAll(calls)
  }
}

export function followUpAll(calls: readonly LimiterCall[]): void {
  for (const { checker, call } of calls) checker.followUpJoined(call)
}

/** What a call that nothing denies has done; the same for all calls of a row. */
export interface Adjusted {
  readonly outcome: Outcome
  readonly reporting: Reporting
}

/**
 * Makes calls that nothing denies, all or none, and says in their order what they did. It throws during an
 * outage whatever `onError` says.
 */
export async function adjustAll(
  calls: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<Adjusted[]> {
  const asked = askedOf(calls, tx)
  try {
    const { taken } = await takeTogether(asked)
    const adjusted = new Map(
      [...taken].map(([row, decision]) => [
        row,
        { outcome: { call: row, decision, place: 0 }, reporting: row.reporting },
      ]),
    )
    const rows = asked.charges.map((charge) => found(asked.rowOf, charge))
    return calls.map(({ checker, call }) => {
      const { reporting } = checker.config
      if (!isRequest(call)) return { outcome: unlimitedOutcome(call, checker.clockMs()), reporting }
      return found(adjusted, rows.shift() as RowRequest)
    })
  } finally {
    followUpAll(calls)
  }
}

/** What calls ask of which rows, and where. */
interface AskedTogether {
  readonly calls: readonly LimiterCall[]
  readonly checkers: readonly Checker[]
  readonly joined: Connection | undefined
  readonly charges: readonly Charge[]
  readonly rowOf: ReadonlyMap<Charge, RowRequest>
}

function askedOf(calls: readonly LimiterCall[], tx: Database | undefined): AskedTogether {
  const { checkers, joined } = together(calls, tx)
  const charges = chargesOf(calls)
  return { calls, checkers, joined, charges, rowOf: addUp(charges) }
}

/** The calls that the database decides. */
export function chargesOf(calls: readonly LimiterCall[]): Charge[] {
  return calls.flatMap(({ checker, call }) => (isRequest(call) ? [{ checker, request: call }] : []))
}

function takeTogether({ calls, checkers, joined, rowOf }: AskedTogether): Promise<Decisions> {
  const rows = [...new Set(rowOf.values())]
  if (joined) return takeAllOrNone(joined, rows, 'as the session')
  return decideAlone(checkers, rows, takeAllOrNone, () => followUpAll(calls))
}

/** The limiters of calls that are decided in one transaction, and the transaction that they join. */
export function together(
  calls: readonly LimiterCall[],
  tx: Database | undefined,
): {
  readonly checkers: readonly Checker[]
  readonly home: Connection
  readonly joined: Connection | undefined
} {
  const checkers = [...new Set(calls.map(({ checker }) => checker))]
  const [first] = checkers
  checkOption(first !== undefined, 'At least one request is needed.')
  const { home } = first.config
  checkOption(
    checkers.every(({ config }) => config.home.db === home.db),
    'The limiters of one call need one database.',
  )
  return { checkers, home, joined: first.joined(tx) }
}

/** The answers in the order of the calls. Those without a limit are answered here. */
function answerAll(
  calls: readonly LimiterCall[],
  answerLimited: (call: LimiterCall) => Answered,
): Answered[] {
  return calls.map((each) => {
    const { checker, call } = each
    if (isRequest(call)) return answerLimited(each)
    const outcome = unlimitedOutcome(call, checker.clockMs())
    return { answer: answerOf(outcome, checker.config.reporting), paid: paymentOf(outcome) }
  })
}

/**
 * Decides in a transaction of its own. `followUp` is called when it has ended, which may be after the time of
 * the call is over.
 */
export async function decideAlone(
  checkers: readonly Checker[],
  rows: readonly RowRequest[],
  take: typeof takeAllOrNone,
  followUp: () => void,
): Promise<Decisions> {
  if (rows.length === 0) return { looks: new Map(), taken: new Map() }
  const hastiest = checkers.reduce((one, other) => (timeoutOf(other) < timeoutOf(one) ? other : one))
  const { home } = hastiest.config
  const clocks = checkers.map(({ config }) => config.namespace.clock?.() ?? null)
  const commit = commitTogether(checkers.map(({ config }) => config.commit))
  const stage: Stage = { mayCharge: false, mayWait: false }
  const decide = async (isOver: () => boolean) => {
    // If nobody waits any more, the transaction is rolled back.
    const goOn = () => {
      if (isOver()) throw timedOut(false)
    }
    for (const { config } of checkers) await config.ensureTables?.()
    return inTransaction(home.db, async (tx) => {
      stage.mayCharge = false
      stage.mayWait = true
      goOn()
      return take(connectionTo(tx, home.keeping), rows, commit, () => {
        goOn()
        stage.mayCharge = true
      })
    })
  }
  const decisions = await beside(hastiest, stage, (isOver) => decide(isOver).finally(followUp))
  for (const [i, checker] of checkers.entries()) checker.sweepSometimes(clocks[i] ?? null)
  return decisions
}

/** How a transaction commits in which several limiters charge: in the strictest way that one of them needs. */
function commitTogether(commits: readonly Commit[]): Commit {
  return (['flushed', 'async'] as const).find((commit) => commits.includes(commit)) ?? 'as the session'
}

/** The answers to the charges, in their order. */
function answersOf(
  { charges, rowOf }: Pick<AskedTogether, 'charges' | 'rowOf'>,
  { looks, taken }: Decisions,
): Answered[] {
  // Of calls that are added up, the first one tells which thresholds were crossed and which period has ended.
  const told = new Set<RowRequest>()
  return charges.map((charge) => {
    const row = found(rowOf, charge)
    const look = found(looks, row)
    const { dryRun, thresholds } = row.reporting
    const isSure = fits(row, look) || isForced(charge.request)
    const part = isSure ? partOf(row, look) : undefined
    const took = taken.get(row)
    if (part && took) {
      const isTold = told.has(row)
      told.add(row)
      const decision = isTold ? { ...took, ended: undefined } : took
      const paid = paymentOf({ call: charge.request, decision, place: 0 })
      const reporting = { dryRun, thresholds: isTold ? [] : thresholds }
      return { answer: answerOf({ call: part, decision, place: 0 }, reporting), paid }
    }
    // Nothing was taken: a limit that would allow says what it has.
    const call: RowRequest = isSure
      ? { ...row, rate: 0, purpose: 'look' }
      : { ...row, rate: row.needed, purpose: 'take' }
    // A check that takes nothing makes the row all the same, if the row has to fill.
    const isNew = look.isNew === true && row.purpose === 'look'
    const outcome = { call, decision: { ...look, granted: 0, isNew }, place: 0 }
    return { answer: answerOf(outcome, row.reporting), paid: NOTHING }
  })
}

const NOTHING = { rate: 0, windowStart: null, usedBefore: null }

/** The answer of several checks. */
export function combined<Request>(
  requests: readonly Request[],
  answered: readonly Answered[],
): LimitAllResult<Request> {
  const results = answered.map(({ answer }) => answer)
  return {
    success: results.every(({ success }) => success),
    results,
    denied: requests.filter((_, place) => !results[place]?.success),
    // A call that fits goes on fitting, so all fit when the last one does.
    retryAfter: Math.max(...results.map(({ retryAfter }) => retryAfter)),
  }
}

function timeoutOf({ config }: Checker): number {
  return config.bounds?.timeoutMs ?? Number.POSITIVE_INFINITY
}
