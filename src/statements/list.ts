import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { sizeParameter } from '../database/run.ts'
import type { Statement } from '../database/statement.ts'
import { name, Parameters } from './builder.ts'
import { type Guard, guard } from './guard.ts'
import { chain, type Link, link } from './link.ts'
import {
  amountOf,
  decidedAt,
  decidedRow,
  type ListRow,
  lockedRow,
  orNulls,
  rowAnswer,
  seenRow,
  writtenRow,
} from './list-row.ts'
import { type Commit, settingsOf } from './setting.ts'
import { SHARES, sharesLink } from './shares.ts'

// A list is of rows of which all are charged, or none.

export interface ListSource {
  /** In the order of table, prefix and key, in which every list locks. */
  readonly rows: readonly ListRow[]
  /** The places of the rows that share one rate, the first one first; a place of -1 takes all the rest. */
  readonly sharing: readonly number[] | undefined
  readonly commit: Commit
  /** Whether it does nothing, and says so, if a table does not have the size that the caller believes. */
  readonly guarded: boolean
  /** Whether it waits for rows that other transactions hold, or leaves them out. */
  readonly waits: boolean
}

const DONE = 'ratelimit_done'

/**
 * The statement that charges all rows, or none. Its answer has what each row had before. It charges nothing if
 * a row that has to be there is not, or is left out.
 *
 * A statement that waits locks no row behind one that is missing. So that row can be made afterwards without
 * breaking the order of the locks.
 */
export function listStatement(source: ListSource): Statement {
  const { rows, sharing, waits } = source
  const parameters = new Parameters()
  const scopes = rows.map((_, place) => parameters.scoped(`${place}.`))
  const settings = settingsOf(source.commit)
  const guards = guardsOf(source, parameters)
  const links: Link[] = [...settings.links, ...[...guards.values()].flatMap((each) => each.links)]

  const last = rows.findLastIndex(({ does }) => does !== 'look')
  let inTurn: SQL[] = []
  for (const [place, row] of rows.entries()) {
    if (row.does === 'look') continue
    const { fits } = guards.get(row.table) as Guard
    const conditions = fits ? [...inTurn, fits] : inTurn
    links.push(link(lockedAt(place), lockedRow(row, scopes[place] as Parameters, conditions, waits)))
    const locked = sql`(select count(*) from ${name(lockedAt(place))})`
    inTurn = waits && row.isNeeded ? [sql`${locked} = 1`] : [...inTurn, sql`${locked} >= 0`]
  }

  for (const [place, row] of rows.entries()) {
    const own = scopes[place] as Parameters
    const from = row.does === 'look' ? seenRow(row, own) : lockedSource(row, place)
    // The clock is read after the last lock.
    const isLast = last < 0 || place === last
    const rowSource = isLast ? from : sql`${from} where (select count(*) from ${name(lockedAt(last))}) >= 0`
    links.push(link(decidedAt(place), decidedRow(row, rowSource, own).query))
  }

  if (sharing) links.push(sharesLink(rows, sharing, parameters))
  const lets = rows.map((_, place) => sql`(select lets from ${name(decidedAt(place))})`)
  const fits = [...guards.values()].flatMap((each) => (each.fits ? [each.fits] : []))
  const enough = sharing ? [sql`(select rest from ${name(SHARES)}) = 0::float8`] : []
  const all = sql.join([...fits, ...lets, ...enough], sql` and `)
  const sizes = [...guards.values()].flatMap((each) => (each.size ? [each.size] : []))
  const done = [
    sql`coalesce(${all}, false) as done`,
    ...sizes.map((size, i) => sql`${size} as ${name(sizeParameter(i))}`),
  ]
  const setting = settings.links.length > 0 ? sql` from ${name((settings.links[0] as Link).alias)}` : sql``
  links.push(link(DONE, sql`select ${sql.join(done, sql`, `)}${setting}`))

  const isDone = sql`(select done from ${name(DONE)})`
  for (const [place, row] of rows.entries()) {
    const { does } = row
    if (does === 'look') continue
    const own = scopes[place] as Parameters
    const amount = sharing ? shareAt(place) : amountOf(row, decidedAt(place), own)
    const isCharged = sharing ? sql`${isDone} and ${amount} > 0::float8` : isDone
    links.push(
      link(
        `ratelimit_written_${place}`,
        writtenRow({ ...row, does }, decidedAt(place), amount, isCharged, own),
      ),
    )
  }

  const answers = rows.map((row, place) => {
    const columns = Object.entries(rowAnswer(row, decidedAt(place)))
    const list = [
      sql`${sql.raw(String(place))} as place`,
      name('done', DONE),
      ...sizes.map((_, i) => name(sizeParameter(i), DONE)),
      ...columns.map(([column, value]) => sql`${value} as ${name(column)}`),
    ]
    return sql`select ${sql.join(list, sql`, `)} from ${name(DONE)} left join ${name(decidedAt(place))} on true`
  })
  return parameters.render(chain(links, sql.join(answers, sql` union all `)))
}

function lockedSource(row: ListRow, place: number): SQL {
  const locked = name(lockedAt(place))
  return row.isNeeded ? locked : orNulls(locked)
}

/** A guard for each of the tables, with the parameters `size`, `size1` and so on. */
function guardsOf({ rows, guarded }: ListSource, parameters: Parameters): ReadonlyMap<RateLimitTable, Guard> {
  const tables = [...new Set(rows.map(({ table }) => table))]
  return new Map(tables.map((table, i) => [table, guard({ table, guarded }, parameters, i)]))
}

function shareAt(place: number): SQL<number> {
  return sql`(select ${name(`share_${place}`)} from ${name(SHARES)})`
}

function lockedAt(place: number): string {
  return `ratelimit_locked_${place}`
}
