import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../database/statement.ts'
import { type Link, link, name, Parameters } from './builder.ts'
import { DECIDED } from './decided.ts'
import {
  type Commit,
  guard,
  guardedStatement,
  type PlanGuard,
  type TransactionSettings,
  transactionSettings,
} from './guard.ts'
import { type ColumnByName, type Level, level, type QueryLevel } from './levels.ts'
import {
  answerColumnsOf,
  at,
  type ChargedRow,
  DONE,
  foundColumns,
  foundRow,
  isChargedIn,
  type ListRow,
  nextOf,
  type PlacedRow,
  THERE,
  takenAmount,
  updatedRow,
} from './list-row.ts'
import { advancedRows, foundRows, offeredRows, verdictOn } from './list-steps.ts'
import { areFree, decidedLinks, madeIn, WAS } from './made.ts'
import { ofGroup, type Payers, SHARE, sharesOfRows, withNotes } from './shares.ts'

// A list is a list of rows that are all charged, or none of them.

export interface ListSource {
  /** In the order in which every list locks: table, prefix, key. */
  readonly rows: readonly ListRow[]
  /** The groups of rows that pay one rate together. The other rows pay their own rates. */
  readonly groups: readonly Payers[]
  readonly commit: Commit
  /** Whether it does nothing and returns the sizes if a table does not have the expected size. */
  readonly guarded: boolean
}

export const FOUND = 'ratelimit_found'

/**
 * The statement that charges all rows of a list, or none. It returns the rows as they were before. If a needed
 * row is missing or was skipped, it charges nothing.
 *
 * A statement that waits locks no row that comes after a missing one. So the missing row can be made afterwards
 * in the order of the locks.
 */
export function listStatement(source: ListSource & { readonly waits: boolean }): Statement {
  const { rows, waits } = source
  const parameters = new Parameters()
  const guarding = planGuardOf(source, parameters)
  const all = rows.map((row, place) => ({ row, place, own: parameters.scoped(`${place}.`) }))
  const settings = settingsFor(source, waits)
  const found = foundInTurn(all, guarding, waits)
  const there = rows.flatMap((row, place) => (mustExist(row) ? [name(at(place, THERE))] : []))
  const sizes = [...new Set(rows.map(({ table }) => table))].flatMap((table) => guarding.fits(table) ?? [])
  const mayFail = madeIn(all).length > 1
  const free = mayFail ? areFree(all, guarding) : []
  const advanced = advancedRows(all, found)
  const decided = doneRows(all, advanced, source, [...sizes, ...there, ...free], parameters)
  const done = withNotes(all, source.groups, decided, parameters)
  const written = writtenLinks(all, name(DONE, DECIDED), guarding, THERE)
  return guardedStatement(parameters, guarding, settings, {
    links: [
      link(FOUND, found.query),
      ...decidedLinks(done, all, guarding, settings.join, mayFail),
      ...written,
    ],
    columns: [
      name(DONE, DECIDED),
      ...rows.flatMap((row, place) => answerColumnsOf(row, place, DECIDED)),
      ...rows.flatMap(({ isNeeded }, place) => (isNeeded ? [name(at(place, THERE), DECIDED)] : [])),
    ],
    from: name(DECIDED),
  })
}

/** Whether the statement does nothing if the row is missing. */
function mustExist({ isNeeded, insertsIfMissing }: ListRow): boolean {
  return isNeeded && !insertsIfMissing
}

/**
 * The settings of the statement. If it does not wait, it also fails instead of waiting for a transaction that
 * inserts the same row.
 */
export function settingsFor({ rows, commit }: ListSource, waits: boolean): TransactionSettings {
  return transactionSettings(commit, !waits && rows.some(({ insertsIfMissing }) => insertsIfMissing))
}

function foundInTurn(rows: readonly PlacedRow[], guarding: PlanGuard, waits: boolean): QueryLevel {
  let inTurn: readonly SQL[] = []
  let from = sql`(select 1) as ${name('one')}`
  for (const { row, place, own } of rows) {
    const conditions = row.does === 'look' ? [] : [...inTurn, guarding.fits(row.table)]
    const found = foundRow(row, place, own, conditions, waits)
    from = sql`${from} left join lateral (${found}) as ${name(`row_${place}`)} on true`
    if (!waits || row.does === 'look') continue
    const there = name(at(place, THERE))
    // The condition for the next row depends on this one, so Postgres locks this one first.
    inTurn = mustExist(row) ? [sql`${there}`] : [...inTurn, sql`coalesce(${there}, true)`]
  }
  const columns = rows.flatMap(({ row, place }) => foundColumns(row, place, false))
  return foundRows(FOUND, columns, from, rows)
}

/**
 * The level that decides whether the list is done: if the conditions hold and each row lets it. `advanced` has
 * the states of the rows.
 */
export function doneRows(
  rows: readonly PlacedRow[],
  advanced: Level,
  { rows: all, groups }: Pick<ListSource, 'rows' | 'groups'>,
  conditions: readonly SQL[],
  parameters: Parameters,
): QueryLevel {
  const offered = offeredRows(rows, advanced)
  const shared = groups.reduce<Level>(
    (level, payers, group) => sharesOfRows(all, payers, group, level, parameters),
    offered,
  )
  const verdicts = rows.map(verdictOn)
  const lets = [
    ...conditions,
    ...verdicts.map(({ lets }) => lets),
    // The rows of each group have enough together.
    ...groups.map(
      (_, group) => sql`${name(ofGroup(group, 'rest'))} <= ${parameters.number(ofGroup(group, 'spare'))}`,
    ),
  ]
  return level('decided', shared, {
    ...Object.assign({}, ...verdicts.map(({ columns }) => columns)),
    [DONE]: sql`coalesce(${sql.join(lets, sql` and `)}, false)`,
  })
}

export function planGuardOf({ rows, guarded }: ListSource, parameters: Parameters): PlanGuard {
  return guard([...new Set(rows.map(({ table }) => table))], guarded, parameters)
}

/**
 * The links that write the rows of lists that are done.
 *
 * @param there The column that says whether a row was there, if a list can be done without it.
 */
export function writtenLinks(
  rows: readonly PlacedRow[],
  isDone: SQL,
  guarding: PlanGuard,
  there?: string,
): readonly Link[] {
  return rows.flatMap(({ row, place, own }) => {
    const { does, table, rules, pays, insertsIfMissing } = row
    if (does === 'look') return []
    const charged = { ...row, does }
    const of: ColumnByName = (column) => name(at(place, column), DECIDED)
    // Asking once more keeps Postgres from reading a table that has outgrown the plan.
    const isDoneAsPlanned = and(isDone, guarding.fits(table)) as SQL
    const amount = pays ? of(SHARE) : takenAmount(row, of, own)
    const isPaid = pays ? sql`${isDoneAsPlanned} and ${isPaying(charged, amount, own)}` : isDoneAsPlanned
    const isCharged = isChargedIn(charged, of, isPaid)
    const taken = rules.startsFull
      ? amount
      : sql<number>`case when ${isCharged} then ${amount} else 0::float8 end`
    const next = nextOf(charged, of, taken, own)
    const wasThere = insertsIfMissing ? WAS : there
    const isThere = wasThere === undefined ? undefined : of(wasThere)
    const decided = { link: DECIDED, of }
    return [link(`ratelimit_written_${place}`, updatedRow(charged, decided, next, isCharged, isThere, own))]
  })
}

/** Whether a row of a group changes: it pays something, or settles an estimate at the same time. */
function isPaying({ pays, does, rules }: ChargedRow, amount: SQL<number>, parameters: Parameters): SQL {
  if (pays === 'debt') return sql`${amount} <> 0::float8`
  const isPaid = sql`${amount} > 0::float8`
  const keepsReserved = does === 'adjust' && rules.algorithm.settled
  return keepsReserved ? sql`(${isPaid} or ${parameters.number('reserved')} < 0::float8)` : isPaid
}
