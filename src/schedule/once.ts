import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { untilDone } from '../kernel/database/retry.ts'
import { inTransactionIf } from '../kernel/database/transaction.ts'
import { parseDuration } from '../kernel/duration.ts'
import { type At, isCallTime } from '../kernel/engine/bounds.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { runOn } from '../kernel/engine/run-on.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { fixedWindow } from '../kernel/limits/fixed-window.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { withUnitsInRows } from '../kernel/lists/units-in-rows.ts'
import type { Once } from '../kernel/options/calls.ts'
import { decideOne } from '../kernel/queue/decide.ts'
import { type Call, type Decision, lookAt, type Request, requestFor } from '../kernel/store/call.ts'
import { removeRow } from '../kernel/store/fill.ts'
import type { Target } from '../kernel/store/store.ts'
import { cancelOf } from './start.ts'

// Starts that are given once for an id. The row of the id is a window that begins at the start, so it also says
// when the call starts. Charge and id are two statements of one transaction, in the order in which calls of
// several limits lock most rows: the limit, then the id.

/** The id of a call, as it is stored. */
export interface Id {
  /** The checker of the rows of ids. */
  readonly checker: Checker
  readonly key: string
  /** How long it is remembered, from the start of the call. */
  readonly lengthMs: number
}

/**
 * The id of a call that has to start within a time. It is remembered for that time in addition, since its row
 * begins at the start.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 */
export async function idOf(once: Once, each: LimiterCall, withinMs: number): Promise<Id> {
  const lengthMs = parseDuration(once.for, 'The time of once') + withinMs
  const { checker, call } = (await idCall({ id: once.id, for: lengthMs }, [each])) as LimiterCall
  return { checker, key: call.key, lengthMs }
}

/** The start that a call with the same id was given before. */
export interface Repeated {
  readonly repeated: true
  readonly startsAt: number
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
  const attempt = async (connection: Connection): Promise<T | Repeated | undefined> => {
    const before = await startWith(id, connection)
    if (before) return before
    const work = async (own: Connection) => {
      const charged = await charge(own.db)
      const startsAt = startOf(charged)
      const uses = startsAt !== undefined && (await idIn(id, own, { startsAt, times: 1 })).granted > 0
      return { charged, startsAt, uses }
    }
    const { charged, startsAt, uses } = await inTransactionIf(connection, work, (found) => found.uses)
    if (uses) return charged
    // A call with the same id may have been faster, and may be what has denied this one.
    return (await startWith(id, connection)) ?? (startsAt === undefined ? charged : undefined)
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
  for (const { alone, rows } of [checker, id.checker])
    alone.sweeps.after(charged, rows.namespace.clock?.() ?? null)
  return charged
}

/** Cancels a start, and frees its id. Returns whether something was given back. */
export function cancelOnce(
  checker: Checker,
  id: Id,
  call: Request,
  startsAt: number,
  tx: Database | undefined,
): Promise<boolean> {
  const work = async (own: Connection) => {
    const { decision } = await checker.decide(cancelOf(call, startsAt), own.db)
    if (decision.granted === 0) return false
    // It locks the row of the id, which another process may have freed or used again.
    const { granted, state } = await idIn(id, own, { startsAt, times: 2 })
    if (granted === 0 || state.count !== 1 || state.windowStart !== startsAt) return false
    await removeRow(targetOn(id, own), id.key)
    return true
  }
  return withinTimeout([checker], tx, (at) =>
    runOn(checker, at, 'changes', (connection) => inTransactionIf(connection, work, (isDone) => isDone)),
  )
}

/** The start that was given for the id. Undefined if the id is free. */
async function startWith(id: Id, connection: Connection): Promise<Repeated | undefined> {
  const request = lookAt(id.key, fixedWindow(1, id.lengthMs))
  const { state } = await decideOne(targetOn(id, connection), { request, calls: ONE })
  const { count = 0, windowStart } = state
  return count > 0 && windowStart !== undefined ? { repeated: true, startsAt: windowStart } : undefined
}

/** Uses the id at the start, if it was used less often than so many times before. */
function idIn(
  id: Id,
  own: Connection,
  { startsAt, times }: { readonly startsAt: number; readonly times: number },
): Promise<Decision> {
  const request = requestFor(id.key, fixedWindow(times, id.lengthMs), 'take', 1)
  return decideOne({ ...targetOn(id, own), clockMs: startsAt }, { request, calls: ONE })
}

function targetOn({ checker }: Id, connection: Connection): Target {
  return { ...checker.rows, connection, commit: 'as the session' }
}

const ONE = { length: 1 }
