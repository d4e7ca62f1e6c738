import { and, type SQL, sql } from 'drizzle-orm'
import { builder, isTheRow, type Link, link, name } from './builder.ts'
import { DECIDED, storedRow } from './decided.ts'
import type { PlanGuard } from './guard.ts'
import { type ColumnByName, level, type QueryLevel } from './levels.ts'
import { at, type ChargedRow, DONE, nextOf, type PlacedRow, THERE, takenAmount, VERSION } from './list-row.ts'
import { insertRow, newRows } from './rows.ts'

// The rows of a list that are usually missing, so that the list's own statement inserts them.

/** The link that decides before the missing rows are inserted. */
const LET = 'ratelimit_let'

/** Whether a row was there before the statement. Only such a row is searched again to be updated. */
export const WAS = 'was'

type MadeRow = PlacedRow & { readonly row: ChargedRow }

export function madeIn(rows: readonly PlacedRow[]): readonly MadeRow[] {
  return rows.filter((each): each is MadeRow => each.row.insertsIfMissing && each.row.does !== 'look')
}

/** Whether the rows to be made are free. A row that others hold was not found, and must not make it fail. */
export function areFree(rows: readonly PlacedRow[], guarding: PlanGuard): readonly SQL[] {
  return madeIn(rows).map(
    (each) => sql`(${name(at(each.place, THERE))} is true or ${isMissing(each, guarding)})`,
  )
}

/**
 * The links that decide lists and insert their missing rows. If another transaction has inserted one of them
 * meanwhile, the list is not done, and that row is not `there`; or the statement fails if it `mayFail`, because
 * what else it has done for the list would stay. If the list is not done for another reason, a missing row is
 * only `there` if it is certain that it is missing: others may hold it, or have inserted it just now.
 *
 * @param join Joined to the inserts, so that the settings come first.
 */
export function decidedLinks(
  decided: QueryLevel,
  rows: readonly PlacedRow[],
  guarding: PlanGuard,
  join: SQL,
  mayFail: boolean,
): readonly Link[] {
  const made = madeIn(rows)
  if (made.length === 0) return [link(DECIDED, decided.query)]
  const inserts = made.map((each) => link(linkOf(each), insertOf(each, join, mayFail)))
  const joins = made.map((each) => {
    const { own } = each
    return sql` left join ${name(linkOf(each))} on ${name('key', linkOf(each))} = ${own.text('key')}`
  })
  const isDone = sql`(${sql.join([name(DONE), ...made.map(isThere)], sql` and `)})`
  const unchanged = rows.filter(({ row }) => row.keepsVersion === true)
  const there = made.flatMap((each) => {
    const isCertain = and(
      ...[sql`not ${name(DONE)}`, isMissing(each, guarding)],
      ...unchanged.map((other) => isUnchanged(other, guarding)),
    )
    return [
      [at(each.place, THERE), sql`(${isThere(each)} or (${isCertain}))`],
      [at(each.place, WAS), sql`${name(at(each.place, THERE), LET)} is true`],
    ] as const
  })
  const all = level(
    'made',
    { source: sql`${name(LET)}${sql.join(joins, sql``)}`, columns: decided.columns },
    { [DONE]: isDone, ...Object.fromEntries(there) },
  )
  return [link(LET, decided.query), ...inserts, link(DECIDED, all.query)]
}

function linkOf({ place }: PlacedRow): string {
  return `ratelimit_made_${place}`
}

function isThere(each: PlacedRow): SQL {
  return sql`(${name(at(each.place, THERE), LET)} is true or ${name('key', linkOf(each))} is not null)`
}

/** Whether the statement's snapshot has no such row. If it has one that was not found, others hold it. */
function isMissing(each: MadeRow, guarding: PlanGuard): SQL {
  return sql`(${inSnapshot(each, guarding, sql`true`)}) is null`
}

/**
 * Whether the locked row is the one in the statement's snapshot. If it is newer, the transaction that has
 * written it may also have inserted a row that the snapshot lacks.
 */
function isUnchanged(each: PlacedRow, guarding: PlanGuard): SQL {
  const isSame = sql`${name(at(each.place, VERSION), LET)} = (${inSnapshot(each, guarding, sql`ctid`)})`
  return each.row.insertsIfMissing
    ? sql`(${name(at(each.place, THERE), LET)} is not true or ${isSame})`
    : isSame
}

/** Reads the row without a lock. It is a scalar, which the planner does not turn into a join of the tables. */
function inSnapshot({ row: { table }, own }: PlacedRow, guarding: PlanGuard, column: SQL): SQL {
  return builder
    .select({ column })
    .from(table)
    .where(and(isTheRow(table, own), guarding.fits(table)))
    .getSQL()
}

function insertOf({ row, place, own }: MadeRow, join: SQL, mayFail: boolean): SQL {
  const { table, rules } = row
  const of: ColumnByName = (column) => name(at(place, column), LET)
  const next = nextOf(row, of, takenAmount(row, of, own), own)
  const from = sql`${name(LET)}${join} where ${name(DONE)} and ${of(THERE)} is not true`
  const made = newRows(own.text('prefix'), own.text('key'), storedRow(rules, next, own), from)
  return insertRow(table, made, mayFail ? 'fail' : 'skip')
}
