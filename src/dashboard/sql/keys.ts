import { and, asc, desc, eq, gt, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import type { Rules } from '../../kernel/limits/algorithm.ts'
import { builder, isTheRow, name, Parameters } from '../../kernel/sql/builder.ts'
import { exact, rowColumns } from '../../kernel/sql/columns.ts'
import { advanced, type Level, level, paramsOf, stateOf } from '../../kernel/sql/levels.ts'
import { hasUsed, listedColumns } from '../../reports/sql/usage.ts'

// A view reads a bounded part of a prefix, however many rows there are.

/** The most rows that are read to find the keys nearest to their limit: those that expire last. */
export const MAX_READ = 20_000

/** The most keys that a search looks through, in their order, and the most that it finds. */
export const MAX_SEARCHED = 200_000
export const MAX_FOUND = 1_000

/** The keys of each limit have a plan of their own, which the application is asked for. */
export const MAX_PLANS = 5_000

type Columns = Readonly<Record<string, SQL.Aliased>>

/** Rows of a prefix that have not expired, those that expire last first; or rows whose keys have a part. */
function someRows(
  table: RateLimitTable,
  parameters: Parameters,
  columns: Columns,
  most: number | 'search',
  ...conditions: readonly SQL[]
): SQL {
  const isOfPrefix = eq(table.prefix, parameters.text('prefix'))
  const rows = builder.select(columns).from(table)
  if (most !== 'search') {
    const isCounting = gt(table.expiresAt, clockIn(parameters))
    return sql`${rows
      .where(and(isOfPrefix, isCounting, ...conditions))
      .orderBy(desc(table.expiresAt))
      .getSQL()} limit ${sql.raw(String(most))}`
  }
  const keys = builder.select({ key: table.key }).from(table).where(isOfPrefix).orderBy(asc(table.key))
  const found = sql`select key from (${keys.getSQL()} limit ${sql.raw(String(MAX_SEARCHED))}) as searched
    where strpos(key, ${parameters.text('part')}) > 0 limit ${sql.raw(String(MAX_FOUND))}`
  return rows.where(sql`${and(isOfPrefix)} and ${table.key} in (${found})`).getSQL()
}

function clockIn(parameters: Parameters): SQL {
  return sql`to_timestamp(${parameters.number('clock')} / 1000::float8)`
}

/** The statement that finds keys whose plans are known to the application only. */
export function someKeysStatement(table: RateLimitTable, isSearch: boolean): Statement {
  const parameters = new Parameters()
  const columns = { key: sql`${table.key}`.as('key') }
  return parameters.render(someRows(table, parameters, columns, isSearch ? 'search' : MAX_PLANS))
}

/** How much may be missing to a unit that can be taken: buckets count fractions. */
const NEARLY = sql.raw('1e-9::float8')

/**
 * The statement that finds the keys nearest to their limit, a page of them, with how many have used something
 * and how many have nothing left. Rows of other algorithms and periods come last.
 */
export function nearestStatement(table: RateLimitTable, rules: Rules, isSearch: boolean): Statement {
  const { algorithm } = rules
  const parameters = new Parameters()
  const columns = listedColumns(table, rules, parameters)
  const few = someRows(table, parameters, columns, isSearch ? 'search' : MAX_READ)
  const rows: Level = {
    source: sql`(select *, count(*) over () as seen from (${few}) as few) as stored`,
    columns: [...Object.keys(columns), 'seen'],
  }
  const states = advanced(rules, rows, parameters.number('clock'), parameters, { keepHolds: true })
  const [now, params] = [name('now'), paramsOf(algorithm, parameters)]
  const own = (value: SQL, other: SQL) => sql`case when ${name('like')} then ${value} else ${other} end`
  const capacity = algorithm.sql.capacity?.(stateOf(), params) ?? parameters.number('limit')
  const { source } = level('used', states, {
    used: own(algorithm.sql.used(stateOf(), now, params), sql`coalesce(counted, 0::float8)`),
    capacity: own(capacity, sql`null`),
    available: own(algorithm.sql.available(stateOf(), now, params), sql`null`),
  })
  const isFull = sql`available < least(1::float8, capacity) - ${NEARLY}`
  return parameters.render(
    sql`select key, ${name('like')}, ${exact(name('used'))} as counted, total, nothing, seen
      from (
        select *, used / nullif(capacity, 0::float8) as share, count(*) over () as total,
          count(*) filter (where ${isFull}) over () as nothing
        from ${source}
        where ${hasUsed(rules)}
      ) as ranked
      order by share desc nulls last, used desc, key
      limit ${parameters.number('size')}::bigint offset ${parameters.number('offset')}::bigint`,
  )
}

/** The statement that finds the keys that are blocked now, those whose block ends first before the others. */
export function blockedStatement(table: RateLimitTable, rules: Rules): Statement {
  const { algorithm } = rules
  const parameters = new Parameters()
  const columns = { key: sql`${table.key}`.as('key'), ...rowColumns(table, algorithm) }
  // Of the rows of a lockout, the end of the last block. Rows without a block may be many.
  const mayBeBlocked = gt(table.lastRefill, clockIn(parameters))
  const rows: Level = {
    source: sql`(${someRows(table, parameters, columns, MAX_READ, mayBeBlocked)}) as stored`,
    columns: Object.keys(columns),
  }
  const states = advanced(rules, rows, parameters.number('clock'), parameters, { keepHolds: true })
  const until = algorithm.sql.blockedUntil?.(stateOf(), paramsOf(algorithm, parameters)) ?? sql`null::float8`
  const { source } = level('blocked', states, { until })
  return parameters.render(
    sql`select key, ${exact(name('until'))} as until from ${source} where holds and ${name('until')} > now
      order by ${name('until')}, key limit ${parameters.number('size')}::bigint`,
  )
}

/** The statement that tells whether a key has a row. */
export function hasRowStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  return parameters.render(
    builder.select({ key: table.key }).from(table).where(isTheRow(table, parameters)).getSQL(),
  )
}
