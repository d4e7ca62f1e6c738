import { type SQL, sql } from 'drizzle-orm'
import { columnList, type Link, link, name, Parameters } from './builder.ts'
import { SQL_NAMES } from './columns.ts'
import type { PlanGuard } from './guard.ts'
import { type ColumnByName, ENDED, type Level, level, type QueryLevel, stateOf } from './levels.ts'
import { doneRows } from './list.ts'
import {
  at,
  BEFORE,
  type ChargedRow,
  DONE,
  foundColumns,
  isChargedIn,
  nextOf,
  type PlacedRow,
  takenAmount,
  updatedRow,
} from './list-row.ts'
import { advancedRows, foundRows } from './list-steps.ts'

// Lists with common rows. Each list finds these rows as the one before it has left them.

const COMMON_FOUND = 'ratelimit_common_found'
const MAY = 'ratelimit_may'
const ASKED = 'ratelimit_asked'
const TURNS = 'ratelimit_turns'
const LAST = 'ratelimit_last'

/** The turn of a list, and the turn that finds these states of the common rows. */
const [TURN, NEXT] = ['turn', 'next']

const LISTS = 'lists'

const CHARGED = 'charged'

/** A row of the lists and its place in each list. */
export interface SentRow extends PlacedRow {
  readonly columns: readonly string[]
  readonly found: SQL
}

/** A row that all lists have at one place. */
export type CommonRow = SentRow & { readonly row: ChargedRow }

/** The decisions on lists in turn. */
interface DecidedTurns {
  readonly level: QueryLevel
  readonly links: readonly Link[]
  /** The links that write the common rows. */
  written(guarding: PlanGuard): readonly Link[]
}

/**
 * The level that decides the lists one after the other.
 *
 * @param may The lists, and whether their own rows let them be done.
 */
export function decidedInTurn(may: QueryLevel, common: readonly CommonRow[]): DecidedTurns {
  const columns = common.flatMap(({ row, place }) => foundColumns(row, place, true))
  const from = sql.join(
    common.map(({ found }) => found),
    sql` cross join `,
  )
  const found = foundRows(COMMON_FOUND, columns, from, common)
  const advanced = advancedRows(common, found)
  const none = Object.fromEntries(common.map(({ place }) => [at(place, CHARGED), sql`false`]))
  const first = level('first', advanced, none)
  const turn = sql`(row_number() over (order by ${name('place')}))::integer`
  const numbered = level('numbered', may, { [TURN]: turn })
  const sent = common.flatMap(({ place, columns: own }) => own.map((column) => `${place}.${column}`))
  const asked = [DONE, ...sent].map((column) => [column, askedIn(column)] as const)
  const step = level(
    'step',
    {
      source: sql`${name(TURNS)} where ${name(NEXT)} <= (select ${name(LISTS)} from ${name(ASKED)})`,
      columns: [NEXT, ...first.columns],
    },
    Object.fromEntries(asked),
  )
  const next = level('after', decide(step), Object.assign({}, ...common.map(afterOne)))
  const seed = sql`select 1::integer as ${name(NEXT)}, ${columnList(first.columns)} from ${first.source}`
  const steps = sql`select ${name(NEXT)} + 1::integer, ${columnList(first.columns)} from ${next.source}`
  const arrays = asked.map(
    ([column]) => sql`pg_catalog.array_agg(${name(column)} order by ${name(TURN)}) as ${name(column)}`,
  )
  const decided = decide({
    source: sql`${name(MAY)} join ${name(TURNS)} on ${name(TURN)} = ${name(NEXT)}`,
    columns: [...numbered.columns, ...first.columns],
  })
  return {
    level: decided,
    links: [
      link(COMMON_FOUND, found.query),
      link(MAY, numbered.query),
      link(
        ASKED,
        sql`select count(*)::integer as ${name(LISTS)}, ${sql.join(arrays, sql`, `)} from ${name(MAY)}`,
      ),
      link(
        TURNS,
        sql`with recursive ${name(TURNS)} as (${seed} union all ${steps}) select * from ${name(TURNS)}`,
      ),
    ],
    written: (guarding) => [
      link(LAST, sql`select * from ${name(TURNS)} order by ${name(NEXT)} desc limit 1`),
      ...common.map((one) => writingLink(one, guarding)),
    ],
  }

  function decide(lists: Level): QueryLevel {
    return doneRows(common, lists, { rows: [], groups: [] }, [name(DONE)], new Parameters())
  }
}

/** What the list whose turn is next asks. An array is faster to read than the rows. */
function askedIn(column: string): SQL {
  return sql`(select ${name(column)} from ${name(ASKED)})[${name(NEXT)}]`
}

/** The columns of a common row as a list leaves it. */
function afterOne({ row, place, own }: CommonRow): Readonly<Record<string, SQL>> {
  const { rules, refunds } = row
  const { columns, sql: formulas } = rules.algorithm
  const of: ColumnByName = (column) => name(at(place, column))
  const isCharged = isChargedIn(row, of, name(DONE))
  const next = nextOf(row, of, takenAmount(row, of, own), own)
  const states = columns.map((each) => {
    const column = SQL_NAMES[each]
    const before = of(refunds ? BEFORE + column : column)
    return [at(place, column), sql`case when ${isCharged} then ${next[each]} else ${before} end`] as const
  })
  return {
    ...Object.fromEntries(states),
    [at(place, CHARGED)]: sql`(${of(CHARGED)} or ${isCharged})`,
    // The first list that changes the row reports the period that has ended.
    ...(formulas.ended
      ? { [at(place, ENDED)]: sql`case when not (${isCharged}) then ${of(ENDED)} end` }
      : {}),
  }
}

function writingLink({ row, place, own }: CommonRow, guarding: PlanGuard): Link {
  const of: ColumnByName = (column) => name(at(place, column), LAST)
  const decided = { link: LAST, of }
  const fits = guarding.fits(row.table)
  return link(`ratelimit_written_${place}`, updatedRow(row, decided, stateOf(of), of(CHARGED), fits, own))
}
