import { and, asc, eq, gt, type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import type { StateColumn } from '../limits/algorithm.ts'
import { builder, chain, type Link, link, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { exact, forEach, fromColumn, SQL_NAMES, STATE_COLUMNS } from './columns.ts'
import { CLOCK_MS } from './levels.ts'
import { isLocked, isOwn, mayHavePeriod, PLACE, page, placeOf } from './places.ts'
import { lockedRow } from './rows.ts'

/**
 * The statement that finds a page of a prefix's windows, after a key: those that began early enough to be over.
 * If the size is shown to Citus, it also reads the time of each row's server, `at`.
 */
export function windowsStatement(table: RateLimitTable, isShown = false): Statement {
  const parameters = new Parameters()
  const start = fromColumn('windowStart', table.windowStart)
  const windows = builder
    .select({
      key: sql`${table.key}`.as('key'),
      ...closedState(table),
      ...(isShown ? { at: exact(CLOCK_MS).as('at') } : {}),
    })
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        gt(table.key, parameters.text('after')),
        mayHavePeriod(table),
        ...(isShown ? [] : [isOwn(table)]),
        sql`${start} <= ${parameters.number('latestStart')}`,
      ),
    )
    .orderBy(asc(table.key))
  return parameters.render(page(windows, parameters.number('size'), isShown))
}

function closedState(table: RateLimitTable): Record<StateColumn, SQL.Aliased> {
  return forEach(STATE_COLUMNS, (column) => exact(fromColumn(column, table[column])).as(SQL_NAMES[column]))
}

/**
 * The statement that removes windows and returns their counts. It skips rows that others have locked or
 * changed.
 */
export function closeStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const prefix = parameters.text('prefix')
  const start = fromColumn('windowStart', table.windowStart)
  const isWindow = [eq(table.key, sql`call.key`), sql`${start} = call.start`, isOwn(table)]
  const row = lockedRow(table, placeOf(table), [eq(table.prefix, prefix), ...isWindow])
  const locked = sql`select ${PLACE} from ${callsFrom(parameters, ['key', 'start'])} cross join lateral (${row}) as stored`
  const removed = builder.delete(table).where(isLocked(table, ENDED_ROWS)).returning(returned(table))
  return parameters.render(closed([link(ENDED_ROWS, locked)], removed))
}

const ENDED_ROWS = 'ratelimit_ended'

export function returned(table: RateLimitTable): Pick<RateLimitTable, 'key' | StateColumn> {
  const { key, count, prevCount, windowStart, tokens, lastRefill } = table
  return { key, count, prevCount, windowStart, tokens, lastRefill }
}

/**
 * The statement that returns the counts of removed rows. Citus refuses functions where rows are returned, if
 * they depend on settings. So the numbers are worked out afterwards.
 */
export function closed(links: readonly Link[], removed: SQLWrapper): SQL {
  const numbers = STATE_COLUMNS.map((column) => {
    const stored = name(SQL_NAMES[column])
    return sql`${exact(fromColumn(column, stored))} as ${stored}`
  })
  const columns = sql.join([name('key'), ...numbers], sql`, `)
  return chain([...links, link(CLOSED, removed)], sql`select ${columns} from ${name(CLOSED)}`)
}

const CLOSED = 'ratelimit_closed'
