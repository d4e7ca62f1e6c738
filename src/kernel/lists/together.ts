import { eachOnce } from '../base/arrays.ts'
import { onceFor } from '../base/once.ts'
import { telling } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { uncharged } from '../database/database-error.ts'
import { type CallTime, timedOut } from '../engine/bounds.ts'
import type { Checker } from '../engine/checker.ts'
import { shortestTimeoutOf } from '../engine/within-timeout.ts'
import { Work } from '../engine/work.ts'
import { Turns } from '../queue/turns.ts'
import type { Commit } from '../sql/guard.ts'
import { chargeList, checkedWhole } from './all-or-nothing.ts'
import type { CombinedCalls } from './combined-calls.ts'
import { decideAlone, decideLists } from './decide-lists.ts'
import { isLook } from './parts.ts'
import { type Found, type List, rowsInLockOrder } from './sending.ts'
import { queued, type SentList, type SharedList } from './shared-list.ts'
import { withUnitsInRows } from './units-in-rows.ts'

// Calls of several limiters that are decided together, in the caller's transaction or in one of their own.

/** Charges the rows of the calls. Those of a group pay its rate together, and the others pay their own. */
export async function takeTogether(
  asked: CombinedCalls,
  { groups = [], notes = new Map() }: Partial<Pick<List, 'groups' | 'notes'>> = {},
): Promise<Found> {
  const rows = eachOnce([...asked.rowOf.values()])
  const followUp = () => {
    // Remembered denials may be wrong if the rows have more than before.
    for (const { checker, call } of asked.calls) checker.followUpJoined(call)
  }
  try {
    return await withUnitsInRows(asked, (time) =>
      chargeTogether(asked, time, { rows, groups, notes }, followUp),
    )
  } finally {
    followUp()
  }
}

/**
 * Charges the rows: in the transaction, or by statements of its own when the turn of the rows comes. `followUp`
 * is called when these statements have ended, which may be after the call has timed out.
 */
function chargeTogether(
  { checkers, joined }: CombinedCalls,
  time: CallTime | undefined,
  list: Pick<List, 'rows' | 'groups' | 'notes'>,
  followUp: () => void,
): Promise<Found> {
  const rows = rowsInLockOrder(list.rows)
  const charges = !rows.every(isLook)
  if (joined || rows.length === 0) {
    const home = (checkers[0] as Checker).rows.connection
    const own = { connection: joined ?? home, commit: 'as the session', onSend: () => {} } as const
    const charging = chargeList({ ...list, ...own, rows, periodsMs: undefined, hasMade: false, held: [] })
    return charges ? charging : uncharged(charging)
  }
  const shortest = shortestTimeoutOf(checkers)
  const { watch } = shortest.alone
  // In Workers a call cannot wait for another one's statement.
  const inTurn = checkers.every(({ alone }) => alone.connections !== undefined)
  const work = new Work<Found>(shortest, shortest.boundsOf(time))
  const { sending } = work
  const connection = telling(shortest.rows.connection, sending)
  const clocks = checkers.map(({ rows }) => rows.namespace.clock?.() ?? null)
  const commit = commitTogether(checkers.map(({ rows }) => rows.commit))
  const onSend: List['onSend'] = (mayCharge, mayWait, shared) => {
    // The call has ended, so nothing more is sent.
    if (work.isOver) throw timedOut(false, work.isContended)
    work.mayCharge = mayCharge && charges
    work.mayWait = mayWait
    work.statement = shared
    work.sending = shared ?? sending
    work.isContended ||= mayWait
  }
  const { groups, notes } = list
  const begun = { periodsMs: undefined, hasMade: false, held: [] }
  const own: List = { rows, groups, notes, connection, commit, onSend, ...begun }
  const ensures = checkers.flatMap(({ rows }) => rows.ensureTables ?? [])
  const sent = { list: own, watch, ensures, found: undefined, isOver: () => work.isOver, ended: followUp }
  const charged = inTurn ? chargeInTurn(work, sent) : chargeAtOnce(work, sent, shortest)
  for (const [i, checker] of checkers.entries()) checker.alone.sweeps.after(charged, clocks[i] ?? null)
  return charged
}

function chargeInTurn(work: Work<Found>, sent: SentList): Promise<Found> {
  const { list } = sent
  const turn = turnsOn(list.connection.db).enter(queued(sent))
  work.mayWait = true
  work.isContended = turn.isBehind
  const charging = turn.comes.then((found) => checkedWhole(list, found))
  return work.waitFor(charging, turn)
}

function chargeAtOnce(work: Work<Found>, sent: SentList, checker: Checker): Promise<Found> {
  const leave = checker.room.enter()
  const charging = async () => {
    for (const ensureTables of sent.ensures) await ensureTables()
    return decideAlone(sent, async () => {})
  }
  return work.waitFor(charging(), { leave })
}

/** The turns on a database, which all its limiters share. */
const turnsOn = /* @__PURE__ */ onceFor(
  (_: Database) => new Turns<SharedList, Found>(decideLists, decideAlone),
)

/** How the statement of several limiters commits: in the strictest way that one of them needs. */
function commitTogether(commits: readonly Commit[]): Commit {
  return (['flushed', 'async'] as const).find((commit) => commits.includes(commit)) ?? 'as the session'
}
