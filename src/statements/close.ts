import { and, asc, eq, gt, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { StateColumn } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { builder, chain, link, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { forEach, fromColumn, mayHavePeriod, SQL_NAMES, STATE_COLUMNS } from './columns.ts'
import { page } from './page.ts'

/**
 * The statement that finds a page of a prefix's windows, after a key: those that began early enough to be over.
 */
export function windowsStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const start = fromColumn('windowStart', table.windowStart)
  const windows = builder
    .select({ key: sql`${table.key}`.as('key'), ...numbersOf(table) })
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        gt(table.key, parameters.text('after')),
        mayHavePeriod(table),
        sql`${start} <= ${parameters.number('latestStart')}`,
      ),
    )
    .orderBy(asc(table.key))
  return parameters.render(page(windows, parameters.number('size')))
}

/** The state of a row. */
function numbersOf(table: RateLimitTable): Record<StateColumn, SQL.Aliased> {
  return forEach(STATE_COLUMNS, (column) => fromColumn(column, table[column]).as(SQL_NAMES[column]))
}

/**
 * The statement that removes windows and returns their counts. It skips rows that others have locked or
 * changed.
 */
export function closeStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const prefix = parameters.text('prefix')
  const start = fromColumn('windowStart', table.windowStart)
  const place = sql<string>`${table}.ctid`
  const row = builder
    .select({ found: place.as('found') })
    .from(table)
    .where(and(eq(table.prefix, prefix), eq(table.key, sql`call.key`), sql`${start} = call.start`))
    .for('update', { skipLocked: true })
  const locked = sql`select found from ${callsFrom(parameters, ['key', 'start'])} cross join lateral (${row.getSQL()}) as stored`
  const removed = builder
    .delete(table)
    .where(sql`${place} = any(array(${locked}))`)
    .returning({ key: table.key, ...numbersOf(table) })
  return parameters.render(
    chain([link('ratelimit_closed', removed)], sql`select * from ${name('ratelimit_closed')}`),
  )
}
