import { and, asc, eq, gt, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { builder, chain, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { callsFrom } from '../../kernel/sql/calls.ts'
import { exact, forEach, fromColumn, SQL_NAMES, STATE_COLUMNS } from '../../kernel/sql/columns.ts'
import { CLOCK_MS } from '../../kernel/sql/levels.ts'
import { isLocked, isOwn, mayHavePeriod, PLACE, placeOf } from '../../kernel/sql/places.ts'
import { lockedRow } from '../../kernel/sql/rows.ts'
import type { Steps } from '../../kernel/store/store.ts'
import { page } from '../../shared/page.ts'

/**
 * The statement that finds a page of a prefix's windows, after a key: those that began early enough to be over.
 * If the size `isShown`, see `Store`, it also reads the time of each row's server, `at`.
 */
export function windowsStatement(table: RateLimitTable, isShown: boolean): Statement {
  const parameters = new Parameters()
  const start = fromColumn('windowStart', table.windowStart)
  const windows = builder
    .select({
      key: sql`${table.key}`.as('key'),
      ...forEach(STATE_COLUMNS, (column) => exact(fromColumn(column, table[column])).as(SQL_NAMES[column])),
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

/**
 * The statement that removes windows and returns their counts. It skips rows that others have locked or
 * changed.
 *
 * Citus refuses functions where rows are returned, if they depend on settings. So the numbers are worked out
 * afterwards.
 */
export function closeStatement(
  table: RateLimitTable,
  remove: Steps['removeWindows'] = removeWindows,
): Statement {
  const parameters = new Parameters()
  const { key, count, prevCount, windowStart, tokens, lastRefill } = table
  const columns = { key, count, prevCount, windowStart, tokens, lastRefill }
  const { found, removed } = remove(table, parameters, columns)
  const numbers = STATE_COLUMNS.map((column) => {
    const stored = name(SQL_NAMES[column])
    return sql`${exact(fromColumn(column, stored))} as ${stored}`
  })
  const answer = sql`select ${sql.join([name('key'), ...numbers], sql`, `)} from ${name(CLOSED)}`
  return parameters.render(chain([found, link(CLOSED, removed)], answer))
}

const [ENDED_ROWS, CLOSED] = ['ratelimit_ended', 'ratelimit_closed']

const removeWindows: Steps['removeWindows'] = (table, parameters, columns) => {
  const prefix = parameters.text('prefix')
  const start = fromColumn('windowStart', table.windowStart)
  const isWindow = [eq(table.key, sql`call.key`), sql`${start} = call.start`, isOwn(table)]
  const row = lockedRow(table, placeOf(table), [eq(table.prefix, prefix), ...isWindow])
  const locked = sql`select ${PLACE} from ${callsFrom(parameters, ['key', 'start'])} cross join lateral (${row}) as stored`
  const removed = builder.delete(table).where(isLocked(table, ENDED_ROWS)).returning(columns)
  return { found: link(ENDED_ROWS, locked), removed }
}
