import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../database/statement.ts'
import { type Link, link, listOf, name, Parameters } from './builder.ts'
import { DECIDED } from './decided.ts'
import { type Body, type Guard, guard, guardedStatement } from './guard.ts'
import { type Column, type Level, level } from './levels.ts'
import {
  amountOf,
  answerColumns,
  at,
  type Charged,
  DONE,
  decidedRows,
  foundColumns,
  foundRow,
  type ListRow,
  type PlacedRow,
  THERE,
  writtenRow,
} from './list-row.ts'
import { decidedLinks } from './made.ts'
import { type Commit, type Settings, settingsOf } from './setting.ts'
import { REST, SHARE, sharesOfRows } from './shares.ts'

// A list is a list of rows that are all charged, or none of them.

export interface ListSource {
  /** In the order in which every list locks: table, prefix, key. */
  readonly rows: readonly ListRow[]
  /** The places of the rows that share one rate, in the order in which they pay. Place -1 pays all the rest. */
  readonly sharing: readonly number[] | undefined
  readonly commit: Commit
  /** Whether it does nothing and returns the sizes if a table does not have the expected size. */
  readonly guarded: boolean
}

export interface OneListSource extends ListSource {
  /** Whether it waits for rows that other transactions hold. If not, it skips them. */
  readonly waits: boolean
}

export const FOUND = 'ratelimit_found'

/**
 * The statement that charges all rows of a list, or none. It returns the rows as they were before. If a needed
 * row is missing or was skipped, it charges nothing.
 *
 * A statement that waits locks no row that comes after a missing one. So the missing row can be made afterwards
 * in the order of the locks.
 */
export function listStatement(source: OneListSource): Statement {
  const { rows, sharing, waits } = source
  const parameters = new Parameters()
  const scopes = rows.map((_, place) => parameters.scoped(`${place}.`))
  const guarding = guardOf(source, parameters)

  const all = rows.map((row, place) => ({ row, place, own: scopes[place] as Parameters }))
  const groups = inGroups(all)
  const settings = settingsFor(source, waits)
  const found = foundLinks(groups, guarding, waits)
  const decided = groups.map((group, i) => decidedGroup(group, found[i] as Link, found.at(-1) as Link))
  let joined: Level = {
    source: sql.join(
      decided.map((each) => each.source),
      sql` cross join `,
    ),
    columns: decided.flatMap(({ columns }) => columns),
  }
  if (sharing) joined = sharesOfRows(rows, sharing, joined, parameters)
  const there = rows.flatMap((row, place) => (mustExist(row) ? [name(at(place, THERE))] : []))
  const sizes = [...new Set(rows.map(({ table }) => table))].map((table) => guarding.fits(table))
  const conditions = [...sizes, ...there, ...letsOf([...rows.keys()], sharing)]
  const isDone = sql`coalesce(${sql.join(conditions.filter(Boolean), sql` and `)}, false)`
  const done = level('decided', joined, { [DONE]: isDone })

  const written = rows.flatMap((row, place) => {
    const { does } = row
    if (does === 'look') return []
    const of: Column = (column) => name(at(place, column), DECIDED)
    const own = scopes[place] as Parameters
    // Asking once more keeps Postgres from reading a table that has outgrown the plan.
    const isDone = and(name(DONE, DECIDED), guarding.fits(row.table)) as SQL
    const conditions = { isDone, isThere: of(THERE) }
    return [writtenLink({ ...row, does }, place, { link: DECIDED, of }, sharing, conditions, own)]
  })
  return finished(settings, parameters, guarding, {
    links: [
      ...found,
      ...decided.flatMap(({ links }) => links),
      ...decidedLinks(done, all, settings.join),
      ...written,
    ],
    columns: [
      name(DONE, DECIDED),
      ...rows.flatMap((row, place) => answerOf(row, place, DECIDED)),
      ...rows.flatMap(({ isNeeded }, place) => (isNeeded ? [name(at(place, THERE), DECIDED)] : [])),
    ],
  })
}

/** Whether the statement does nothing if the row is missing. */
function mustExist({ isNeeded, makes }: ListRow): boolean {
  return isNeeded && !makes
}

/**
 * The settings of the statement. If it does not wait, it also fails instead of waiting for a transaction that
 * inserts the same row.
 */
export function settingsFor({ rows, commit }: ListSource, waits: boolean): Settings {
  return settingsOf(commit, !waits && rows.some(({ makes }) => makes))
}

/**
 * The most rows in one chain of levels. Each level repeats the columns below it, so a long chain plans slowly.
 */
const MAX_IN_GROUP = 4

function inGroups(rows: readonly PlacedRow[]): readonly (readonly PlacedRow[])[] {
  const starts = Array.from({ length: Math.ceil(rows.length / MAX_IN_GROUP) }, (_, i) => i * MAX_IN_GROUP)
  return starts.map((start) => rows.slice(start, start + MAX_IN_GROUP))
}

/** The links that find the rows of each group. */
function foundLinks(
  groups: readonly (readonly PlacedRow[])[],
  guarding: Guard,
  waits: boolean,
): readonly Link[] {
  let inTurn: readonly SQL[] = []
  return groups.map((group, i) => {
    let from = sql`(select 1) as ${name('one')}`
    for (const { row, place, own } of group) {
      const conditions = row.does === 'look' ? [] : [...inTurn, guarding.fits(row.table)]
      const found = foundRow(row, place, own, conditions, waits)
      from = sql`${from} left join lateral (${found}) as ${name(`row_${place}`)} on true`
      if (!waits || row.does === 'look') continue
      const there = name(at(place, THERE))
      // The condition for the next row depends on this one, so Postgres locks this one first.
      inTurn = mustExist(row) ? [sql`${there}`] : [...inTurn, sql`coalesce(${there}, true)`]
    }
    const alias = i === 0 ? FOUND : `${FOUND}_${i}`
    inTurn = inTurn.map((condition) => sql`(select ${condition} from ${name(alias)})`)
    const columns = group.flatMap(({ row, place }) => foundColumns(row, place, false))
    return link(alias, sql`select ${listOf(columns)} from ${from}`)
  })
}

/** The levels that add how much the rows of a group have. The clock is read after the last lock. */
function decidedGroup(
  group: readonly PlacedRow[],
  found: Link,
  last: Link,
): Level & { readonly links: readonly Link[] } {
  const isLast = found === last
  const inTurn = isLast ? sql`` : sql` where (select count(*) from ${name(last.alias)}) >= 0`
  const decided = decidedRows(group, {
    source: sql`${name(found.alias)}${inTurn}`,
    columns: group.flatMap(({ row, place }) => foundColumns(row, place, false)),
  })
  if (isLast && found.alias === FOUND) return { ...decided, links: [] }
  const alias = found.alias.replace(FOUND, `${DECIDED}_of`)
  return { source: name(alias), columns: decided.columns, links: [link(alias, decided.query)] }
}

export function guardOf({ rows, guarded }: ListSource, parameters: Parameters): Guard {
  return guard([...new Set(rows.map(({ table }) => table))], guarded, parameters)
}

/** The conditions under which the list may be done: one of each row, and that they have enough together. */
export function letsOf(places: readonly number[], sharing: readonly number[] | undefined): SQL[] {
  const lets = places.map((place) => name(at(place, 'lets')))
  return sharing ? [...lets, sql`${name(REST)} = 0::float8`] : lets
}

/** The conditions for writing a row. `isThere` is for rows that may be missing. */
interface Conditions {
  readonly isDone: SQL
  readonly isThere?: SQL
}

/** The link that writes a row. With `lists` it writes the charges of that many lists. */
export function writtenLink(
  row: Charged,
  place: number,
  decided: { readonly link: string; readonly of: Column },
  sharing: readonly number[] | undefined,
  { isDone, isThere }: Conditions,
  parameters: Parameters,
  lists?: SQL,
): Link {
  const isSharing = sharing?.includes(place) === true
  const ofOne = isSharing ? decided.of(SHARE) : amountOf(row, decided.of, parameters)
  const amount = lists ? sql<number>`${ofOne} * ${lists}` : ofOne
  const pays = row.pays === 'what it owes' ? sql`<>` : sql`>`
  const isCharged = isSharing ? sql`${isDone} and ${amount} ${pays} 0::float8` : isDone
  return link(`ratelimit_written_${place}`, writtenRow(row, decided, amount, isCharged, isThere, parameters))
}

/** The columns of a row in the answer. Their names begin with the place of the row. */
export function answerOf(row: ListRow, place: number, from: string): SQL[] {
  return answerColumns(row).map(
    ([column, found]) => sql`${name(at(place, found), from)} as ${name(at(place, column))}`,
  )
}

/** The statement made of the links, the settings and the guard. */
export function finished(
  settings: Settings,
  parameters: Parameters,
  guarding: Guard,
  body: Omit<Body, 'from'>,
): Statement {
  return guardedStatement(parameters, guarding, settings, { ...body, from: name(DECIDED) })
}
