import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../database/statement.ts'
import { type Link, link, name, Parameters } from './builder.ts'
import { CALL_COLUMNS, placed } from './calls.ts'
import { DECIDED, slackOf } from './decided.ts'
import type { Guard } from './guard.ts'
import { type Column, type Level, level, type QueryLevel } from './levels.ts'
import { doneRows, FOUND, finished, guardOf, type ListSource, settingsFor, writtenLink } from './list.ts'
import {
  answerOf,
  at,
  DONE,
  foundColumns,
  foundRow,
  type ListRow,
  numbersOf,
  type PlacedRow as PlacedInList,
  THERE,
} from './list-row.ts'
import { foundRows, offeredRows, verdictOn } from './list-steps.ts'
import { decidedLinks } from './made.ts'
import { rateOf, spareOf } from './shares.ts'

export interface ListsSource extends ListSource {
  /** Whether the row at each place is the same one for all lists. The lists then ask the same of it. */
  readonly isCommon: readonly boolean[]
}

const COMMON_FOUND = 'ratelimit_common_found'
const COMMON = 'ratelimit_common'
const TOTAL = 'ratelimit_total'

/** The number of lists for which the common rows have enough. */
const ROOM = 'room'

/** The number of lists, up to this one, whose own rows have enough. */
const TURN = 'turn'

/**
 * The statement that charges many lists in their order, each list whole or not at all. All their rows differ,
 * apart from the common ones. It has an answer for each list whose charged rows exist and are free.
 *
 * All lists ask the same of a common row. So the common rows pay for the first of the lists that their own rows
 * allow, until the common rows have no more.
 */
export function listsStatement(source: ListsSource): Statement {
  const { rows, isCommon } = source
  const parameters = new Parameters()
  const guarding = guardOf(source, parameters)
  const all = rows.map((row, place): PlacedRow => {
    const columns = isCommon[place] ? [] : (['key', ...numbersOf(row)] as const)
    const own = parameters.scoped(`${place}.`, columns)
    const condition = guarding.fits(row.table)
    const found = sql`(${foundRow(row, place, own, [condition], false)}) as ${name(`row_${place}`)}`
    // The common rows are divided among the lists afterwards.
    return { row: isCommon[place] ? { ...row, asks: undefined } : row, place, columns, own, found }
  })
  const common = all.filter(({ place }) => isCommon[place])
  const each = all.filter(({ place }) => !isCommon[place])
  const may = ownDecisions(each, source, guarding, parameters)
  const shared = common.length > 0 ? commonDecisions(common) : undefined
  const done = shared ? inTurn(may, shared) : may
  const total = sql`(select total from ${name(TOTAL)})`
  // The range is always true: see takeManyStatement.
  const isDone = sql`${name(DONE, DECIDED)} and ${name('place', DECIDED)} between 0 and ${MAX_LISTS}`
  const settings = settingsFor(source, false)
  return finished(settings, parameters, guarding, {
    links: [
      ...(shared?.links ?? []),
      ...may.links,
      ...decidedLinks(done, all, guarding, settings.join),
      ...each.flatMap((one) => written(one, DECIDED, isDone)),
      ...(shared
        ? [link(TOTAL, sql`select count(*)::float8 as total from ${name(DECIDED)} where ${name(DONE)}`)]
        : []),
      ...common.flatMap((one) => written(one, COMMON, sql`${total} > 0::float8`, total)),
    ],
    columns: [
      name('place', DECIDED),
      name(DONE, DECIDED),
      ...all.flatMap(({ row, place }) => answerOf(row, place, DECIDED)),
      ...all.flatMap(({ row, place }) =>
        row.isNeeded
          ? [sql`${row.makes ? name(at(place, THERE), DECIDED) : sql`true`} as ${name(at(place, THERE))}`]
          : [],
      ),
    ],
  })

  function written({ row, place, own }: PlacedRow, from: string, isDone: SQL, lists?: SQL): Link[] {
    const { does } = row
    if (does === 'look') return []
    const of: Column = (column) => name(at(place, column), from)
    // The repeated condition makes Postgres find the rows by their keys.
    const isSure = and(isDone, guarding.fits(row.table)) as SQL
    return [writtenLink({ ...row, does }, place, { link: from, of }, { isDone: isSure }, own, lists)]
  }
}

const MAX_LISTS: SQL = sql.raw(String(Number.MAX_SAFE_INTEGER))

/** A level and the links that it needs. */
interface Linked extends QueryLevel {
  readonly links: readonly Link[]
}

/** A row of the lists and its place in each list. */
interface PlacedRow extends PlacedInList {
  /** The values that are sent for each list. */
  readonly columns: readonly (keyof typeof CALL_COLUMNS)[]
  readonly found: SQL
}

/**
 * The level that decides, for each list, whether its own rows let it be done; and the link that finds the rows.
 */
function ownDecisions(
  each: readonly PlacedRow[],
  source: ListsSource,
  guarding: Guard,
  parameters: Parameters,
): Linked {
  const sent = each.flatMap(({ columns, place }) =>
    columns.map((column) => [`${place}.${column}`, CALL_COLUMNS[column]] as const),
  )
  // Lists without values of their own are sent as an array of ones.
  const ofGroups = source.groups.flatMap((_, group) => [rateOf(group), spareOf(group)])
  const ofList = ofGroups.length > 0 ? ofGroups : each.length === 0 ? ['one'] : []
  const all = [...sent, ...ofList.map((column) => [column, 'float8'] as const)]
  const names = all.map(([column]) => column)
  const lists = placed(
    names,
    all.map(([column, type]) => parameters.array(column, type)),
  )
  const columns = [
    'place',
    ...names,
    ...each.flatMap(({ row, place }) => foundColumns(row, place, !mayMiss(row))),
  ]
  const joined = each.map(({ row, found }) =>
    mayMiss(row) ? sql` left join lateral ${found} on true` : sql` cross join lateral ${found}`,
  )
  const found = foundRows(FOUND, columns, sql`${lists}${sql.join(joined, sql``)}`, each)

  // A missing row does not show that the table has the size that the plan is for.
  const sizes = each.flatMap(({ row }) => (mayMiss(row) ? [guarding.fits(row.table) ?? sql`true`] : []))
  const may = doneRows(each, found, source, [sql`true`, ...sizes], new Parameters(ofGroups))
  return { ...may, links: [link(FOUND, found.query)] }
}

/** Whether a list can be decided without the row: if it would be inserted, or is only looked at. */
function mayMiss({ makes, does }: ListRow): boolean {
  return makes || does === 'look'
}

/** The level that adds for how many lists the common rows have enough, and its links. */
function commonDecisions(common: readonly PlacedRow[]): Linked {
  const columns = common.flatMap(({ row, place }) => foundColumns(row, place, true))
  const rows = common.map((one) => one.found)
  const found = foundRows(COMMON_FOUND, columns, sql.join(rows, sql` cross join `), common)
  const room = common.map((one) => {
    const { row, place, own } = one
    const slack = slackOf(row.rules.algorithm)
    const enough = sql`floor((${name(at(place, 'available'))}${slack}) / ${own.number('rate')})`
    return sql`case when ${verdictOn(one).lets} then ${enough} else 0 end`
  })
  const offered = offeredRows(common, found)
  const enough = level('decided', offered, { [ROOM]: sql`least(${sql.join(room, sql`, `)})` })
  const links = [link(COMMON_FOUND, found.query), link(COMMON, enough.query)]
  return { ...enough, source: name(COMMON), links }
}

/**
 * The level that picks the lists to do: the first of those that may be done, as far as the common rows last.
 */
function inTurn(may: Level, common: Level): QueryLevel {
  const joined: Level = {
    source: sql`${may.source} cross join ${common.source}`,
    columns: [...may.columns, ...common.columns],
  }
  const turn = sql`sum(case when ${name(DONE)} then 1::float8 else 0::float8 end) over (order by place)`
  const turned = level('turned', joined, { [TURN]: turn })
  return level('decided', turned, { [DONE]: sql`(${name(DONE)} and ${name(TURN)} <= ${name(ROOM)})` }, [
    TURN,
    ROOM,
  ])
}
