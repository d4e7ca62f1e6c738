import { type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../database/statement.ts'
import { link, name, Parameters } from './builder.ts'
import { type CallColumn, placed, typeOf } from './calls.ts'
import { DECIDED } from './decided.ts'
import { guardedStatement } from './guard.ts'
import type { QueryLevel } from './levels.ts'
import { doneRows, FOUND, type ListSource, planGuardOf, settingsFor, writtenLinks } from './list.ts'
import {
  answerColumnsOf,
  at,
  DONE,
  foundColumns,
  foundRow,
  type ListRow,
  sentNumbersOf,
  THERE,
} from './list-row.ts'
import { advancedRows, foundRows } from './list-steps.ts'
import { areFree, decidedLinks, madeIn } from './made.ts'
import { ofGroup, withNotes } from './shares.ts'
import { type CommonRow, decidedInTurn, type SentRow } from './turns-of-lists.ts'

export interface ListsSource extends ListSource {
  /** Whether the row at each place is the same one for all lists. */
  readonly isCommon: readonly boolean[]
  /** The numbers of the limit at each place of which each list sends its own. Default: none. */
  readonly differing?: readonly (readonly string[])[]
}

/**
 * The statement that charges many lists in their order, each list whole or not at all. All their rows differ,
 * apart from the common ones. It has an answer for each list whose charged rows exist and are free.
 *
 * What the lists ask of their own rows is decided first. Then the lists that these allow take from the common
 * rows one after the other.
 */
export function listsStatement(source: ListsSource): Statement {
  const { rows, isCommon, groups, differing = [] } = source
  const parameters = new Parameters()
  const guarding = planGuardOf(source, parameters)
  const all = rows.map((row, place): SentRow => {
    const columns = [...sentByEach(row, isCommon[place] === true), ...(differing[place] ?? [])]
    const own = parameters.scoped(`${place}.`, columns)
    const condition = guarding.fits(row.table)
    const found = sql`(${foundRow(row, place, own, [condition], false)}) as ${name(`row_${place}`)}`
    return { row, place, columns, own, found }
  })
  const common = all.filter((one): one is CommonRow => isCommon[one.place] === true)
  const each = all.filter(({ place }) => !isCommon[place])
  const numbers = groups.flatMap((_, group) => [ofGroup(group, 'rate'), ofGroup(group, 'spare')])
  const ofGroups = new Parameters(numbers)
  const found = foundLists(all, each, numbers, parameters)
  // What is made for one list must not stay if another is not, and each list counts on those before it.
  const mayFail = madeIn(each).length > (common.length > 0 ? 0 : 1)
  // A missing row does not show that the table has the size that the plan is for.
  const sizes = each.flatMap(({ row }) => (mayMiss(row) ? [guarding.fits(row.table) ?? sql`true`] : []))
  const conditions = [sql`true`, ...sizes, ...(mayFail ? areFree(each, guarding) : [])]
  const own = doneRows(each, advancedRows(each, found), source, conditions, ofGroups)
  const turns = common.length > 0 ? decidedInTurn(own, common) : undefined
  const done = withNotes(all, groups, turns?.level ?? own, ofGroups)
  // The range is always true: see takeManyStatement.
  const isDone = sql`${name(DONE, DECIDED)} and ${name('place', DECIDED)} between 0 and ${LAST_PLACE}`
  const settings = settingsFor(source, false)
  return guardedStatement(parameters, guarding, settings, {
    links: [
      link(FOUND, found.query),
      ...(turns?.links ?? []),
      ...decidedLinks(done, all, guarding, settings.join, mayFail),
      ...writtenLinks(each, isDone, guarding),
      ...(turns?.written(guarding) ?? []),
    ],
    columns: [
      name('place', DECIDED),
      name(DONE, DECIDED),
      ...all.flatMap(({ row, place }) => answerColumnsOf(row, place, DECIDED)),
      ...all.flatMap(({ row, place }) =>
        row.isNeeded
          ? [
              sql`${row.insertsIfMissing ? name(at(place, THERE), DECIDED) : sql`true`} as ${name(at(place, THERE))}`,
            ]
          : [],
      ),
    ],
    from: name(DECIDED),
  })
}

const LAST_PLACE: SQL = sql.raw(String(Number.MAX_SAFE_INTEGER))

/** The values that each list sends of a row. Those of a common row agree in the window that paid. */
export function sentByEach(row: ListRow, isCommon: boolean): readonly CallColumn[] {
  const numbers = sentNumbersOf(row)
  return isCommon ? numbers.filter((column) => column !== 'paidWindowStart') : ['key', ...numbers]
}

/** The level that finds the rows of each list, but for common ones. `numbers` are sent for each list too. */
function foundLists(
  all: readonly SentRow[],
  each: readonly SentRow[],
  numbers: readonly string[],
  parameters: Parameters,
): QueryLevel {
  const sent = all.flatMap(({ columns, place }) =>
    columns.map((column) => [`${place}.${column}`, typeOf(column)] as const),
  )
  const values = [...sent, ...numbers.map((column) => [column, 'float8'] as const)]
  const names = values.map(([column]) => column)
  const lists = placed(
    names,
    values.map(([column, type]) => parameters.array(column, type)),
  )
  const columns = each.flatMap(({ row, place }) => foundColumns(row, place, !mayMiss(row)))
  const joined = each.map(({ row, found }) =>
    mayMiss(row) ? sql` left join lateral ${found} on true` : sql` cross join lateral ${found}`,
  )
  return foundRows(FOUND, ['place', ...names, ...columns], sql`${lists}${sql.join(joined, sql``)}`, each)
}

/** Whether a list can be decided without the row: if it would be inserted, or is only looked at. */
function mayMiss({ insertsIfMissing, does }: ListRow): boolean {
  return insertsIfMissing || does === 'look'
}
