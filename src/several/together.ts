import type { Outcome } from '../check/answer.ts'
import { beside, type Stage } from '../check/beside.ts'
import { timedOut } from '../check/bounds.ts'
import { type Checker, isRequest, type LimiterCall, unlimitedOutcome } from '../check/checker.ts'
import { type Connection, connectionTo } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { retrying } from '../database/retry.ts'
import { inTransaction } from '../database/transaction.ts'
import { watchWait } from '../runtime/long-waits.ts'
import type { Commit } from '../statements/setting.ts'
import { checkOption } from '../validate.ts'
import { addUp, type Charge, type RowRequest, rowName } from './add-up.ts'
import { type Decisions, deny, type Looks, lookAt, takeAllOrNone } from './all-or-nothing.ts'
import { turnsOn } from './turns.ts'

// Calls of several limiters that are decided in one transaction: the caller's, or their own.

/** What calls ask of which rows, and where. */
export interface AskedTogether {
  readonly calls: readonly LimiterCall[]
  readonly checkers: readonly Checker[]
  readonly joined: Connection | undefined
  readonly charges: readonly Charge[]
  readonly rowOf: ReadonlyMap<Charge, RowRequest>
  /** What the calls without a limit do. Their clocks, which may fail, are read before anything is charged. */
  readonly unlimited: ReadonlyMap<LimiterCall, Outcome>
}

export function askedOf(calls: readonly LimiterCall[], tx: Database | undefined): AskedTogether {
  const { checkers, joined } = together(calls, tx)
  const charges = chargesOf(calls)
  const unlimited = new Map(
    calls
      .filter(({ call }) => !isRequest(call))
      .map((each) => [each, unlimitedOutcome(each.call, each.checker.clockMs())]),
  )
  return { calls, checkers, joined, charges, rowOf: addUp(charges), unlimited }
}

/** The calls that the database decides. */
export function chargesOf(calls: readonly LimiterCall[]): Charge[] {
  return calls.flatMap(({ checker, call }) => (isRequest(call) ? [{ checker, request: call }] : []))
}

export function takeTogether({ calls, checkers, joined, rowOf }: AskedTogether): Promise<Decisions> {
  const rows = [...new Set(rowOf.values())]
  if (joined) return takeAllOrNone(joined, rows, 'as the session')
  return decideAlone(checkers, rows, { deny, take: takeAllOrNone }, () => followUpAll(calls))
}

/** How rows are decided on. */
export interface Deciding {
  /** Whether rows that were found so deny what is asked of them. */
  readonly deny: typeof deny
  readonly take: typeof takeAllOrNone
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
  // A clock that fails does so before any SQL.
  for (const { config } of checkers) config.namespace.clock?.()
  return { checkers, home, joined: first.joined(tx) }
}

/**
 * Decides in a transaction of its own, when it is the turn of the rows. If a look shows that they deny, there
 * is no transaction, and nothing is locked. `followUp` is called when it has ended, which may be after the time
 * of the call is over.
 */
export async function decideAlone(
  checkers: readonly Checker[],
  rows: readonly RowRequest[],
  { deny, take }: Deciding,
  followUp: () => void,
): Promise<Decisions> {
  if (rows.length === 0) return { looks: new Map(), taken: new Map() }
  const hastiest = checkers.reduce((one, other) => (timeoutOf(other) < timeoutOf(one) ? other : one))
  const { home } = hastiest.config
  const clocks = checkers.map(({ config }) => config.namespace.clock?.() ?? null)
  const commit = commitTogether(checkers.map(({ config }) => config.commit))
  const stage: Stage = { mayCharge: false, mayWait: false, isContended: false }
  const decide = async (isOver: () => boolean) => {
    // If nobody waits any more, the transaction is rolled back.
    const goOn = () => {
      if (isOver()) throw timedOut(false, stage.isContended)
    }
    stage.mayWait = false
    for (const { config } of checkers) await config.ensureTables?.()
    const looks = await looksThatDeny(home, rows, deny)
    goOn()
    if (looks) return { looks, taken: new Map() }
    const decideIn = async (tx: Database) => {
      stage.mayCharge = false
      stage.mayWait = true
      stage.isContended = true
      goOn()
      return take(connectionTo(tx, home.keeping), rows, commit, () => {
        goOn()
        stage.mayCharge = true
      })
    }
    return watchWait(() => inTransaction(home.db, decideIn))
  }
  // In Workers a call cannot wait for another one's transaction.
  const inTurn = checkers.every(({ config }) => config.connections !== undefined)
  const enter = () => {
    if (!inTurn) return { leave: hastiest.room.enter() }
    const turn = turnsOn(home.db).enter(rows.map(rowName))
    stage.mayWait = true
    stage.isContended = turn.isBehind
    return turn
  }
  const decided = beside(hastiest, stage, (isOver) => decide(isOver).finally(followUp), enter)
  for (const [i, checker] of checkers.entries()) checker.sweepAfter(decided, clocks[i] ?? null)
  return decided
}

/** What is found without locks, if it shows a denial that has nothing to write. */
async function looksThatDeny(
  home: Connection,
  rows: readonly RowRequest[],
  deny: Deciding['deny'],
): Promise<Looks | undefined> {
  if (rows.every(({ needed, reporting }) => needed <= 0 || reporting.dryRun)) return undefined
  const looks = await retrying(() => lookAt(home, rows))
  // A denial makes a row that has to fill.
  const isWritten = [...looks.values()].some(({ isNew }) => isNew)
  return !isWritten && deny(rows, looks) ? looks : undefined
}

/** How a transaction commits in which several limiters charge: in the strictest way that one of them needs. */
function commitTogether(commits: readonly Commit[]): Commit {
  return (['flushed', 'async'] as const).find((commit) => commits.includes(commit)) ?? 'as the session'
}

/** Forgets what is remembered of rows that may hold more than before. */
export function followUpAll(calls: readonly LimiterCall[]): void {
  for (const { checker, call } of calls) checker.followUpJoined(call)
}

function timeoutOf({ config }: Checker): number {
  return config.bounds?.timeoutMs ?? Number.POSITIVE_INFINITY
}
