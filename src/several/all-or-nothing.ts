import { refusalOf, refusalOn } from '../check/refusal.ts'
import type { Connection } from '../database/connection.ts'
import { notAsExpected } from '../database/rows.ts'
import type { RatelimitError } from '../errors.ts'
import { groupBy } from '../group-by.ts'
import { type Asked, type Asking, applies, askToLook, askToTake } from '../runtime/ask.ts'
import { type Decision, isForced } from '../runtime/call.ts'
import { decideOne } from '../runtime/decide-one.ts'
import type { Commit } from '../statements/setting.ts'
import { type RowRequest, tableNameOf } from './add-up.ts'
import { type Inserted, lockRows, removeEmpty } from './lock-rows.ts'
import { afterRefund, fits, isLook, partsOf } from './parts.ts'

/** What was found in rows. */
export type Looks = ReadonlyMap<RowRequest, Decision>

/** What was decided on rows: the look at each, and the decision on those that were taken from. */
export interface Decisions {
  readonly looks: Looks
  readonly taken: ReadonlyMap<RowRequest, Decision>
}

/**
 * Takes from all rows, or from none, in the given transaction.
 *
 * First it inserts missing rows and locks all rows, in the order of table, prefix and key. Then it looks at
 * all of them. If all have enough, it takes from all. It takes at the time of the look, so that nothing can
 * be denied any more. `beforeTaking` is called before anything is taken, and may throw.
 */
export async function takeAllOrNone(
  tx: Connection,
  rows: readonly RowRequest[],
  commit: Commit,
  beforeTaking: () => void = () => {},
): Promise<Decisions> {
  const locked = await lockAndLook(tx, rows, commit)
  beforeTaking()
  return takeFrom(tx, rows, locked)
}

/** Rows that are locked, and what was found in them. */
export interface Locked {
  readonly looks: Looks
  readonly inserted: readonly Inserted[]
}

/** Inserts missing rows, locks all rows in one order, and looks at them. */
export async function lockAndLook(
  tx: Connection,
  rows: readonly RowRequest[],
  commit: Commit,
): Promise<Locked> {
  const inserted = await lockRows(tx, rows, commit)
  const looks = await lookAt(tx, rows)
  await refuse(
    tx,
    inserted,
    rows.map((row) => refusalOf({ ...row, purpose: 'look' }, found(looks, row), 0)),
  )
  return { looks, inserted }
}

/** Looks at all rows. */
export async function lookAt(connection: Connection, rows: readonly RowRequest[]): Promise<Looks> {
  const looks = new Map<RowRequest, Decision>()
  for (const group of groupsOf(rows)) await look(connection, group, looks)
  return looks
}

/** Whether the rows, as they were found, deny what is asked of them. */
export function deny(rows: readonly RowRequest[], looks: Looks): boolean {
  return !rows.every((row) => row.reporting.dryRun || fits(row, found(looks, row)))
}

function groupsOf(rows: readonly RowRequest[]): RowRequest[][] {
  return groupBy(rows, (row) =>
    JSON.stringify([tableNameOf(row), row.namespace.prefix, row.limiter.signature]),
  )
}

/** Takes from all locked rows if all have enough, or from none. */
export async function takeFrom(
  tx: Connection,
  rows: readonly RowRequest[],
  { looks, inserted }: Locked,
): Promise<Decisions> {
  const taken = new Map<RowRequest, Decision>()
  if (!deny(rows, looks)) {
    await refuse(
      tx,
      inserted,
      rows.map((row) => refusalOfRow(row, found(looks, row))),
    )
    for (const group of groupsOf(rows)) await take(tx, group, looks, taken)
  }
  for (const row of rows) if (!taken.has(row)) await beginToFill(tx, row, looks)
  const isCharged = (row: RowRequest) => partsOf(row, found(looks, row)).some(({ rate }) => rate > 0)
  if (!rows.every((row) => taken.has(row) && isCharged(row))) await removeEmpty(tx, inserted)
  return { looks, taken }
}

/** Throws the first refusal, if there is one. In a transaction of the caller's no trace is left. */
async function refuse(
  tx: Connection,
  inserted: readonly Inserted[],
  refusals: readonly (RatelimitError | undefined)[],
): Promise<void> {
  const refusal = refusals.find((each) => each !== undefined)
  if (!refusal) return
  await removeEmpty(tx, inserted)
  throw refusal
}

/** Why the charge by force of a row is refused, before anything is charged to another. */
function refusalOfRow(row: RowRequest, look: Decision): RatelimitError | undefined {
  const charge = partsOf(row, look).find(isForced)
  return charge && refusalOn(charge, afterRefund(row, look))
}

/** Looks at rows of one limiter. */
async function look(
  connection: Connection,
  rows: readonly RowRequest[],
  looks: Map<RowRequest, Decision>,
): Promise<void> {
  const asking = askingIn(connection, rows[0] as RowRequest)
  const asked = rows.map((row) => askedOnce({ ...row, purpose: 'look' }))
  const answers = await askToLook(asking, asked)
  for (const [i, row] of rows.entries()) {
    const [one, answer] = [asked[i] as Asked, answers[i]]
    looks.set(row, answer && applies(one, answer) ? answer : await decideOne(asking, one))
  }
}

/** Takes from rows of one limiter at the time of their look, so that none is denied. */
async function take(
  tx: Connection,
  rows: readonly RowRequest[],
  looks: Looks,
  taken: Map<RowRequest, Decision>,
): Promise<void> {
  const parts: { row: RowRequest; part: RowRequest; look: Decision }[] = []
  for (const row of rows) {
    const look = found(looks, row)
    const [part, charge] = partsOf(row, look)
    // A charge finds the row as the refund before it leaves it.
    if (part && charge) await decideOne(askingAt(tx, part, look), askedOnce(part))
    if (part) parts.push({ row, part: charge ?? part, look })
  }
  // Each at its own time: a row ahead of the clock must not take its neighbours into the future.
  for (const sameTime of groupBy(parts, ({ part, look }) => `${part.purpose} ${look.now}`)) {
    const [first] = sameTime
    if (!first) continue
    const asking = askingAt(tx, first.part, first.look)
    const asked = sameTime.map(({ part }) => askedOnce(part))
    const answers = first.part.purpose === 'take' ? await askToTake(asking, asked) : []
    for (const [i, { row, part, look }] of sameTime.entries()) {
      if (part.purpose === 'look') {
        taken.set(row, look)
        continue
      }
      const decision = answers[i] ?? (await decideOne(asking, asked[i] as Asked))
      checkIsOf(look, decision, part)
      taken.set(row, decision)
    }
  }
}

/**
 * Nobody else can change a locked row, so what is taken from is as the look saw it, and has enough. Otherwise
 * something between here and the tables found another row than the look did.
 *
 * @throws RatelimitError `DATABASE`, so that the transaction is rolled back.
 */
function checkIsOf(look: Decision, decision: Decision, { limiter, purpose, refund }: RowRequest): void {
  const isSame = limiter.algorithm.columns.every((column) => look.state[column] === decision.state[column])
  const isAsSeen = isSame || refund < 0
  if (!isAsSeen || (purpose === 'take' && decision.granted < 1)) {
    throw notAsExpected('is of another row than the look before it')
  }
}

/** More than any row has. */
export const BEYOND_REACH: number = 2 * Number.MAX_SAFE_INTEGER

/**
 * If new keys have less than the limit, even a denied check inserts the row; otherwise the key would never
 * begin to fill. A call for more than any limit inserts it.
 */
async function beginToFill(tx: Connection, row: RowRequest, looks: Looks): Promise<void> {
  if (row.limiter.startsFull || isLook(row)) return
  const asked = askedOnce({ ...row, rate: BEYOND_REACH, purpose: 'take' })
  await decideOne(askingAt(tx, row, found(looks, row)), asked)
}

function askedOnce(request: RowRequest): Asked {
  return { request, calls: ONE }
}

const ONE = { length: 1 }

function askingIn(connection: Connection, { table, namespace }: RowRequest): Asking {
  return { connection, table, namespace, commit: 'as the session' }
}

/** At the time of the row's look. */
function askingAt(tx: Connection, row: RowRequest, { now }: Decision): Asking {
  return { ...askingIn(tx, row), clockMs: now }
}

/** The value, which is there unless the database's answer had no row for a key. */
export function found<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key)
  if (value === undefined) throw notAsExpected('has no row for a key')
  return value
}
