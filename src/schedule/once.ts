import { isRequest } from '../kernel/answers/outcome.ts'
import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { untilDone } from '../kernel/database/retry.ts'
import { MAX_MS, parseDuration } from '../kernel/duration.ts'
import { type At, isCallTime } from '../kernel/engine/bounds.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { runOn } from '../kernel/engine/work.ts'
import { fixedWindowOf } from '../kernel/limits/fixed-window.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { withUnitsInRows } from '../kernel/lists/units-in-rows.ts'
import type { Once } from '../kernel/options/calls.ts'
import { decideOne } from '../kernel/queue/decide.ts'
import { compareText } from '../kernel/sql/calls.ts'
import { type Call, type Decision, lookAt, type Request, requestFor } from '../kernel/store/call.ts'
import { insertEmpty, removeEmpty } from '../kernel/store/empty-rows.ts'
import { removeRow } from '../kernel/store/fill.ts'
import type { Target } from '../kernel/store/store.ts'
import { inTransactionIf } from '../shared/transaction-if.ts'
import { isMarkOf, newMark } from './mark.ts'
import { cancelOf } from './start.ts'

// Starts that are given once for an id. The row of the id is a window that begins at the start, so it also says
// when the call starts. Its count is the mark of the call that has used it. Charge and id are two statements of
// one transaction, which locks both rows first, in the order of every list.

/** The id of a call, as it is stored. */
export interface Id {
  /** The checker of the rows of ids. */
  readonly checker: Checker
  readonly key: string
  /** How long it is remembered, from the start of the call. */
  readonly lengthMs: number
  /** What the call leaves in the row if it uses the id. */
  readonly mark: number
}

/**
 * The id of a call that has to start within a time. It is remembered for that time in addition, since its row
 * begins at the start.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 */
export async function idFor(once: Once, each: LimiterCall, withinMs: number): Promise<Id> {
  const lengthMs = parseDuration(once.for, 'The time of once') + withinMs
  const { checker, call } = (await idCall({ id: once.id, for: lengthMs }, [each])) as LimiterCall
  return { checker, key: call.key, lengthMs, mark: await newMark(each.call) }
}

/** The start that a call with the same id was given before, and the mark of that call. */
export interface Repeated {
  readonly repeated: true
  readonly startsAt: number
  readonly mark: number
}

/**
 * Charges a call if its id is free.
 *
 * @param startOf The start that was given. Undefined if none was, so that the id stays free.
 */
export function chargeOnce<T extends object>(
  checker: Checker,
  id: Id,
  call: Call,
  at: At,
  charge: (at: Database) => Promise<T>,
  startOf: (charged: T) => number | undefined,
): Promise<T | Repeated> {
  // If the clock fails, it must fail before any SQL.
  const clock = checker.rows.namespace.clock?.() ?? null
  const rows = rowsToLock(checker, id, call)
  const attempt = async (connection: Connection): Promise<T | Repeated | undefined> => {
    const before = await startWith(id, connection)
    if (before) return before
    const work = async (own: Connection) => {
      // A look changes neither.
      if (call.rate > 0) {
        await insertEmpty(rows, own, 'as the session', true)
        // A call may have used the id meanwhile. Its start may be too far ahead for `useId` to find.
        if (await startWith(id, own)) return undefined
      }
      const charged = await charge(own.db)
      const startsAt = startOf(charged)
      const uses = startsAt !== undefined && (await useId(id, owned(id, connection, own), startsAt))
      const begins = startsAt === undefined && beginsByDenial(call)
      if (begins) await removeEmpty(rows, own)
      return { charged, startsAt, uses, begins }
    }
    const isDone = (found: Awaited<ReturnType<typeof work>>) => found?.uses || found?.begins || false
    const found = await inTransactionIf(connection, work, isDone)
    if (found?.uses) return found.charged
    // A call with the same id may have been faster, and may be what has denied this one.
    return (await startWith(id, connection)) ?? (found?.startsAt === undefined ? found?.charged : undefined)
  }
  const joined = checker.joined(at)
  const list = {
    calls: [{ checker, call }],
    checkers: [checker],
    joined,
    time: isCallTime(at) ? at : undefined,
  }
  const charged = withUnitsInRows(list, (time) =>
    runOn(checker, time ?? at, 'changes', (connection) =>
      untilDone('used the id of the call and gave it back', () => attempt(connection)),
    ),
  )
  if (joined) return charged
  for (const { alone } of [checker, id.checker]) alone.sweeps.after(charged, clock)
  return charged
}

/**
 * Cancels a start, and frees its id. Returns whether something was given back.
 *
 * @param start It was given to a call with the id. What it was charged is known only if the call was the same.
 */
export async function cancelOnce(
  checker: Checker,
  id: Id,
  call: Request,
  { startsAt, mark }: Pick<Repeated, 'startsAt' | 'mark'>,
  tx: Database | undefined,
): Promise<boolean> {
  if (!(await isMarkOf(mark, call))) return false
  const rows = rowsToLock(checker, id, call)
  const cancelIn = async (own: Connection, target: Target) => {
    await insertEmpty(rows, own, 'as the session', true)
    // Another process may have freed the id or used it again.
    const { granted, state } = await takeFrom(id, target, startsAt, mark + 1, 1)
    if (granted === 0 || state.count !== mark || state.windowStart !== startsAt) return false
    const { decision } = await checker.decide(cancelOf(call, startsAt, id.key), own.db)
    if (decision.granted === 0) return false
    await removeRow(target, id.key)
    return true
  }
  return withinTimeout([checker], tx, (at) =>
    runOn(checker, at, 'changes', (connection) => {
      const work = (own: Connection) => cancelIn(own, owned(id, connection, own))
      return inTransactionIf(connection, work, (isDone) => isDone)
    }),
  )
}

/** The rows of the limit and of the id, in the order in which every list locks them. They are in one table. */
function rowsToLock(checker: Checker, id: Id, call: Call) {
  const limited = isRequest(call) ? [{ ...checker.rows, key: call.key }] : []
  return [...limited, { ...id.checker.rows, key: id.key }].toSorted((one, other) =>
    compareText(one.namespace.prefix, other.namespace.prefix),
  )
}

/** Whether a denial makes the row of a new key, which begins to fill then. */
function beginsByDenial(call: Call): boolean {
  return call.rate > 0 && isRequest(call) && !call.limiter.startsFull
}

/**
 * The start that was given for the id. Undefined if the id is free. A call that could wait for longer may have
 * got a start that is further ahead than this call's own window. So the row is read as one of the longest
 * window.
 */
async function startWith(id: Id, connection: Connection): Promise<Repeated | undefined> {
  const request = lookAt(id.key, fixedWindowOf(1, MAX_MS))
  const { state, now } = await decideOne(targetOn(id, connection), { request, calls: ONE })
  const { count = 0, windowStart } = state
  return count > 0 && windowStart !== undefined && now < windowStart + id.lengthMs
    ? { repeated: true, startsAt: windowStart, mark: count }
    : undefined
}

/** Uses the id at the start, if it is free. */
async function useId(id: Id, target: Target, startsAt: number): Promise<boolean> {
  return (await takeFrom(id, target, startsAt, id.mark, id.mark)).granted > 0
}

/** Takes from the id at the start, which is the time by which its row is read. */
function takeFrom(
  { key, lengthMs }: Id,
  target: Target,
  startsAt: number,
  limit: number,
  rate: number,
): Promise<Decision> {
  const namespace = { ...target.namespace, clock: () => startsAt }
  const request = requestFor(key, fixedWindowOf(limit, lengthMs), 'take', rate)
  return decideOne({ ...target, namespace }, { request, calls: ONE })
}

function targetOn({ checker }: Id, connection: Connection): Target {
  return { ...checker.rows, connection, commit: 'as the session' }
}

/** In a transaction of its own, the statement also sets how the transaction commits. */
function owned(id: Id, { isTransaction }: Connection, own: Connection): Target {
  return { ...targetOn(id, own), commit: isTransaction ? 'as the session' : id.checker.rows.commit }
}

const ONE = { length: 1 }
