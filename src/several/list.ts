import { appliesAt, paramsAt } from '../algorithms/limiter.ts'
import type { Connection } from '../database/connection.ts'
import { mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import { type Row, run, runKept, runOnce } from '../database/run.ts'
import type { Value } from '../database/statement.ts'
import { quotedName } from '../database/table-name.ts'
import { timed } from '../diagnostics.ts'
import { endedIn, stateIn } from '../runtime/ask.ts'
import { type Decision, reservedIn, type Table } from '../runtime/call.ts'
import { compareText, textArray } from '../statements/calls.ts'
import { OTHER } from '../statements/levels.ts'
import { listStatement } from '../statements/list.ts'
import type { ListRow } from '../statements/list-row.ts'
import { lockStatement, removeEmptyStatement } from '../statements/lock.ts'
import type { Commit } from '../statements/setting.ts'
import { kept, type Statements } from '../statements/statements.ts'
import { type RowRequest, tableNameOf } from './add-up.ts'
import { isLook } from './parts.ts'

// One statement each: what is sent for a list of rows, and what its answer means.

/** One rate that rows share: `order` has them in the order in which they give; undefined gives all the rest. */
export interface Sharing {
  readonly rate: number
  readonly order: readonly (RowRequest | undefined)[]
}

/** A list, and how it is sent. */
export interface List {
  readonly connection: Connection
  /** In the order in which every list locks. */
  readonly rows: readonly RowRequest[]
  readonly sharing: Sharing | undefined
  readonly commit: Commit
  /**
   * Called before each statement: whether it may charge, and whether it may wait for a row. What it throws ends
   * the list.
   */
  readonly onSend: (mayCharge: boolean, mayWait: boolean) => void
  /** Times in the calendar periods to ask for, where they are known better than by the clocks. */
  readonly periodsMs: Map<RowRequest, number>
}

/** What a statement found: `isDone` says whether it charged the list. */
export interface Found {
  readonly isDone: boolean
  /** The rows as they were before. Those that are missing here are missing in the table, or held by others. */
  readonly looks: ReadonlyMap<RowRequest, Decision>
}

/** The rows in the order in which every list locks: by table, prefix and key. */
export function inLockOrder(rows: readonly RowRequest[]): RowRequest[] {
  return rows.toSorted(
    (one, other) =>
      compareText(tableNameOf(one), tableNameOf(other)) ||
      compareText(one.namespace.prefix, other.namespace.prefix) ||
      compareText(one.key, other.key),
  )
}

/** Whether the row has to be there for the list to be charged. */
export function isNeeded(row: RowRequest): boolean {
  return !isLook(row) && (row.rate > 0 || !row.limiter.startsFull)
}

/** Longer lists are rare, and each length is another statement. */
const MAX_KEPT_ROWS = 4

/** How many shapes of lists the connections keep for a table: each takes a megabyte of a backend's memory. */
const MAX_KEPT_SHAPES = 32

/** The shapes of lists that connections keep. */
const keptShapes = new WeakMap<Statements, Set<string>>()

function isKept(statements: Statements, shape: string, rows: number): boolean {
  if (rows > MAX_KEPT_ROWS) return false
  const shapes = keptShapes.get(statements) ?? new Set()
  keptShapes.set(statements, shapes)
  return shapes.has(shape) || (shapes.size < MAX_KEPT_SHAPES && shapes.add(shape).size > 0)
}

/** Charges the list, or only looks at its rows. */
export async function askList(list: List, how: 'looks' | 'skips' | 'waits'): Promise<Found> {
  const { connection, rows, sharing, commit, periodsMs } = list
  const tables = tablesOf(rows)
  const shapes = rows.map((row) => ({
    ...shapeOf(row, how === 'looks', sharing !== undefined),
    table: (tables.get(tableNameOf(row)) as Table).table,
  }))
  const order = how === 'looks' ? undefined : sharing?.order.map((row) => (row ? rows.indexOf(row) : -1))
  const values: Record<string, Value> = { rate: sharing?.rate ?? 0 }
  const params = rows.map((row, place) => {
    const { limiter, namespace } = row
    const clock = namespace.clock?.() ?? null
    const own = limiter.periodAt
      ? paramsAt(limiter, periodsMs.get(row) ?? clock ?? Date.now())
      : limiter.params
    for (const [name, value] of Object.entries({ ...valuesOf(row), clock, ...own })) {
      values[`${place}.${name}`] = value
    }
    return own
  })
  const [{ statements }] = [...tables.values()] as [Table]
  const name = `list ${how} ${commit} ${order?.join() ?? ''} ${shapes.map(nameOf).join()}`
  const build = (guarded: boolean) =>
    listStatement({ rows: shapes, sharing: order, commit, guarded, waits: how === 'waits' })
  const about = { prefix: undefined, statement: 'list', keys: rows.length } as const
  list.onSend(how !== 'looks', how === 'waits')
  const answer = await timed(about, () =>
    !isKept(statements, name, rows.length)
      ? runOnce(connection.db, build(false), values)
      : run(
          connection,
          [...tables.values()].map(({ size }) => size),
          (guarded) => kept(statements, `${name} ${guarded}`, () => build(guarded)),
          values,
          {},
        ),
  )
  const looks = new Map<RowRequest, Decision>()
  const answered = new Map(answer.map((found) => [Number(mustHave(found['place'])), found]))
  if (answer.length !== rows.length) throw notAsExpected('has another number of rows than the list')
  for (const [place, row] of rows.entries()) {
    const found = answered.get(place)
    if (!found) throw notAsExpected(TWO_ROWS)
    if (mustHave(found['now']) !== null)
      looks.set(row, decisionIn(found, row, params[place] as Decision['params']))
  }
  return { isDone: answer[0]?.['done'] === true, looks }
}

function decisionIn(found: Row, { limiter }: RowRequest, params: Decision['params']): Decision {
  return {
    now: Number(found['now']),
    granted: Number(mustHave(found['granted'])),
    state: stateIn(found, limiter),
    params,
    ended: endedIn(found, limiter),
    isOther: found[OTHER] === true,
    isNew: !limiter.startsFull && found['holds'] !== true,
  }
}

/** The rows whose calendar period was guessed wrong. Their right ones are asked for the next time. */
export function learnPeriods({ periodsMs }: List, looks: Found['looks']): boolean {
  let isWrong = false
  for (const [row, { params, now }] of looks) {
    if (!row.limiter.periodAt || appliesAt(params, now)) continue
    periodsMs.set(row, now)
    isWrong = true
  }
  return isWrong
}

/** What is done to a row: giving back alone is an adjustment. */
function shapeOf(row: RowRequest, looks: boolean, isSharing: boolean): ListRow {
  const { table, limiter, namespace, reporting } = row
  const refusesOther = row.refusesOther === true || namespace.refusesOther === true
  const rules = refusesOther ? { ...limiter, refusesOther } : limiter
  const common = { table: table.table, rules, injectedClock: namespace.clock !== undefined }
  if (looks || isLook(row)) {
    return { ...common, does: 'look', refunds: false, asks: false, isDry: false, isNeeded: false }
  }
  const does =
    row.purpose === 'look' || row.purpose === 'adjust' ? 'adjust' : reservedIn(row) > 0 ? 'reserve' : 'take'
  return {
    ...common,
    does,
    refunds: row.refund < 0 && row.purpose !== 'look',
    asks: row.needed > 0 && !isSharing,
    isDry: reporting.dryRun,
    isNeeded: isNeeded(row),
  }
}

function nameOf({ table, rules, ...flags }: ListRow): string {
  return `${quotedName(table)} ${rules.algorithm.name} ${rules.startsFull} ${rules.refusesOther === true} ${Object.values(flags).join(' ')}`
}

function valuesOf(row: RowRequest): Record<string, Value> {
  const { namespace, key, purpose, refund, rate, needed, forced } = row
  const { paidWindowStart, refundableUntil, reserved } = row
  const own = purpose === 'look' ? refund : rate
  return {
    prefix: namespace.prefix,
    key,
    rate: own,
    refund,
    needed,
    forced,
    paidWindowStart,
    refundableUntil,
    reserved,
  }
}

/** The tables of the rows by their names, in their order. Two declarations of one table are one. */
function tablesOf(rows: readonly RowRequest[]): ReadonlyMap<string, Table> {
  return new Map(rows.map((row) => [tableNameOf(row), row.table]))
}

/** The prefixes and keys of the rows in a table, in their order. */
function namesIn(
  table: string,
  rows: readonly RowRequest[],
): { readonly prefix: string; readonly key: string } {
  const own = rows.filter((row) => tableNameOf(row) === table)
  return {
    prefix: textArray(own.map(({ namespace }) => namespace.prefix)),
    key: textArray(own.map(({ key }) => key)),
  }
}

/** Makes the rows that are missing and locks all, in the order of every list. */
export async function makeRows({ connection, rows, commit, onSend }: List): Promise<void> {
  const needed = rows.filter((row) => !isLook(row))
  const tables = tablesOf(needed)
  const values: Record<string, Value> = {}
  for (const [place, name] of [...tables.keys()].entries()) {
    const { prefix, key } = namesIn(name, needed)
    values[`${place}.prefix`] = prefix
    values[`${place}.key`] = key
  }
  const [{ statements }] = [...tables.values()] as [Table]
  const statement = kept(statements, `lock ${commit} ${[...tables.keys()].join()}`, () =>
    lockStatement(
      [...tables.values()].map(({ table }) => table),
      commit,
    ),
  )
  const about = { prefix: undefined, statement: 'make', keys: needed.length } as const
  onSend(false, true)
  await timed(about, () => runKept(connection, statement, ANY_SIZE, values))
}

/** An insert finds its conflict by the primary key, however large the table is. */
const ANY_SIZE = 'any size'

/** Removes the rows that were made and have no state: nothing was taken from them. */
export async function removeEmpty({ connection, rows }: List): Promise<void> {
  const needed = rows.filter((row) => !isLook(row))
  for (const [name, { table, statements }] of tablesOf(needed)) {
    const statement = kept(statements, 'remove empty', () => removeEmptyStatement(table))
    await runOnce(connection.db, statement, namesIn(name, needed))
  }
}
