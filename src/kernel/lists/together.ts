import { isRequest, type Outcome, unlimitedOutcome } from '../answers/outcome.ts'
import { onceFor } from '../base/once.ts'
import { telling } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { type At, isCallTime, timedOut } from '../engine/bounds.ts'
import type { CallTime } from '../engine/call-time.ts'
import type { Checker, LimiterCall } from '../engine/checker.ts'
import { lookAtGate, opensAt } from '../engine/gate.ts'
import { shortestTimeoutOf } from '../engine/within-timeout.ts'
import { Work } from '../engine/work.ts'
import { checkOption } from '../options/validate.ts'
import { Turns } from '../queue/turns.ts'
import type { Commit } from '../sql/guard.ts'
import type { Decision } from '../store/call.ts'
import { addUp } from './add-up.ts'
import { chargeList, checkedWhole } from './all-or-nothing.ts'
import { decideAlone, decideLists } from './decide-lists.ts'
import { found } from './enough.ts'
import { rowsInLockOrder } from './list.ts'
import { fits, isLook } from './parts.ts'
import type { Found, List, RowRequest } from './sending.ts'
import { queued, type SentList, type SharedList } from './shared-list.ts'
import { type Listed, withUnitsInRows } from './units-in-rows.ts'

// Calls of several limiters that are decided together, in the caller's transaction or in one of their own.

/** Calls, and the rows that they charge. */
export interface CombinedCalls extends Listed {
  /** The row of each call that the database decides. */
  readonly rowOf: ReadonlyMap<LimiterCall, RowRequest>
  /**
   * The outcomes of calls without a limit. Their clocks may fail, so they are read before anything is charged.
   */
  readonly unlimited: ReadonlyMap<LimiterCall, Outcome>
  /** The rows of ids, for calls that are charged once. */
  readonly ids: readonly RowRequest[]
  /** The rows of gates that deny the call while its key is blocked. */
  readonly gateOf: ReadonlyMap<LimiterCall, RowRequest>
}

/** @param used The calls that use up ids, for calls that are charged once. */
export function askedOf(
  calls: readonly LimiterCall[],
  tx: At,
  ...used: readonly (LimiterCall | undefined)[]
): CombinedCalls {
  const ids = used.filter((id) => id !== undefined)
  const gated = calls.filter(({ checker, call }) => checker.terms.gate && call.purpose === 'take')
  const gates = gated.flatMap(({ checker, call }) => passing(checker, call.key) ?? [])
  const all = ids.length + gates.length === 0 ? calls : [...calls, ...ids, ...gates]
  const checkers = eachOnce(all.map(({ checker }) => checker))
  const [first] = checkers
  checkOption(first !== undefined, 'At least one request is needed.')
  const { db } = first.rows.connection
  checkOption(
    checkers.every(({ rows }) => rows.connection.db === db),
    'The limiters of one call must have the same db.',
  )
  // If a clock fails, it must fail before any SQL.
  for (const { rows } of checkers) rows.namespace.clock?.()
  const joined = first.joined(tx)
  const rowOf = addUp(all)
  const unlimited = calls.filter(({ call }) => !isRequest(call))
  return {
    calls,
    checkers,
    joined,
    time: isCallTime(tx) ? tx : undefined,
    rowOf,
    unlimited: valuesOf(unlimited, ({ call, checker }) => unlimitedOutcome(call, checker.clockMs())),
    ids: ids.map((id) => found(rowOf, id)),
    gateOf: valuesOf(gated, (_, place) => found(rowOf, gates[place] as LimiterCall)),
  }
}

/** The look at the gate of a key, which denies the whole list if the key may not pass. */
function passing(owner: Checker, key: string): LimiterCall | undefined {
  const look = lookAtGate(owner, key)
  return look && { ...look, call: { ...look.call, atLeast: 1 } }
}

const NO_CALLS: ReadonlyMap<LimiterCall, never> = new Map<LimiterCall, never>()

/** A value for each of the calls. Most lists have no such calls. */
function valuesOf<T>(
  calls: readonly LimiterCall[],
  make: (each: LimiterCall, place: number) => T,
): ReadonlyMap<LimiterCall, T> {
  return calls.length === 0 ? NO_CALLS : new Map(calls.map((each, place) => [each, make(each, place)]))
}

/** Each of the few values once. */
function eachOnce<T>(values: readonly T[]): T[] {
  return values.filter((value, place) => values.indexOf(value) === place)
}

/** Whether one of the ids was used before, so that nothing was charged. */
export function isRepeated(asked: CombinedCalls, decisions: Found): boolean {
  return usedIds(asked, decisions).length > 0
}

export function usedIds({ ids }: CombinedCalls, { looks }: Found): readonly RowRequest[] {
  return ids.filter((id) => !fits(id, found(looks, id)))
}

/** When the call's key is not blocked any more. Undefined if it is not blocked now. */
export function blockedUntil(asked: CombinedCalls, { looks }: Found, each: LimiterCall): number | undefined {
  const gate = asked.gateOf.get(each)
  return gate && opensAt(gate, found(looks, gate))
}

/** The state of a limit without a row. If its key can be blocked, the block's row has the database's time. */
export function withoutRow(
  { unlimited, gateOf }: CombinedCalls,
  looks: Found['looks'],
  each: LimiterCall,
): Decision {
  const { decision } = found(unlimited, each)
  const gate = gateOf.get(each)
  return gate ? { ...decision, now: found(looks, gate).now } : decision
}

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
    return chargeList({ ...list, ...own, rows, periodsMs: undefined, hasMade: false })
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
  const own: List = { rows, groups, notes, connection, commit, periodsMs: undefined, hasMade: false, onSend }
  const ensures = checkers.flatMap(({ rows }) => rows.ensureTables ?? [])
  const sent = { list: own, watch, ensures, isOver: () => work.isOver, ended: followUp }
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
    return decideAlone(sent, undefined, async () => {})
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
