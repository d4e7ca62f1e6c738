import { and, asc, eq, isNull, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Statement } from '../kernel/database/statement.ts'
import { builder, chain, columnList, link, name, Parameters } from '../kernel/sql/builder.ts'
import { callsFrom } from '../kernel/sql/calls.ts'
import { fromColumn, lockedColumns, STATE_COLUMNS } from '../kernel/sql/columns.ts'
import { DECIDED, sentColumns } from '../kernel/sql/decided.ts'
import { guard } from '../kernel/sql/guard.ts'
import { CLOCK_MS } from '../kernel/sql/levels.ts'
import { type LookSource, lookFrom } from '../kernel/sql/look.ts'
import { isExpired, MAX_SWEPT } from '../kernel/sql/remove.ts'
import { lockedRow } from '../kernel/sql/rows.ts'
import { type TakeSource, takeFrom } from '../kernel/sql/take.ts'
import type { Steps } from '../kernel/store/store.ts'

// Statements for tables that Citus has distributed by key. Citus sends a statement to a worker if the text and
// the parameters show that all rows are on one shard. The keys are therefore sent as `key = any(...)`, and each
// table of a statement has this condition.

/** Whether a row is one of the keys. */
function isOneOf(table: RateLimitTable, parameters: Parameters): SQL {
  const keys = parameters.array('key', 'text', true)
  return sql`${table.prefix} = ${parameters.text('prefix')} and ${table.key} = any(${keys})`
}

/** The statement that takes from the rows of many keys of one shard. It skips rows that others hold. */
export function takeShardStatement(source: TakeSource): Statement {
  const { table, rules, differing = [] } = source
  const own = [...sentColumns(rules.algorithm, source), ...differing]
  const parameters = new Parameters(own)
  const stored = lockedColumns(table, rules)
  const calls = ['place', ...own]
  const row = lockedRow(table, { found: sql`${table.key}`.as('found'), ...stored }, [
    isOneOf(table, parameters),
  ])
  const query = sql`select ${columnList(calls, 'call')}, ${columnList(Object.keys(stored), 'stored')}
    from ${callsFrom(parameters, own, true)} join (${row}) as stored on stored.found = call.key`
  const isRow = and(isOneOf(table, parameters), eq(table.key, name('key', DECIDED)))
  const columns = [...calls, ...Object.keys(stored)]
  return takeFrom({ query, columns, isRow, isRare: undefined }, source, parameters, NO_GUARD)
}

const NO_GUARD = guard([], false, new Parameters())

const STORED = 'ratelimit_stored'

/** The statement that looks at keys, of any shards. The time of a row is that of its own server. */
export function lookShardsStatement(source: LookSource): Statement {
  const { table, rules, injectedClock, differing = [] } = source
  const parameters = new Parameters(differing)
  const columns = lockedColumns(table, rules)
  const row = builder
    .select({ found: sql`${table.key}`.as('found'), at: CLOCK_MS.as('at'), ...columns })
    .from(table)
    .where(isOneOf(table, parameters))
  const rows = {
    source: sql`${callsFrom(parameters, ['key', ...differing], true)} left join ${name(STORED)} on ${name('found', STORED)} = call.key`,
    columns: ['place', 'at', ...differing, ...Object.keys(columns)],
  }
  const clock = injectedClock ? parameters.number('clock') : sql`coalesce(${name('at')}, ${CLOCK_MS})`
  return lookFrom(rows, clock, source, parameters, NO_GUARD, [link(STORED, row)])
}

/** The statement that locks those keys of a shard that no other transaction has locked, and returns them. */
export function lockFreeStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  return parameters.render(
    lockedRow(table, { key: sql`${table.key}`.as('key') }, [isOneOf(table, parameters)]),
  )
}

/**
 * The statement that inserts rows without a state, where they are missing. If it `locks`, it also locks the
 * rows that exist: see `lockStatement`.
 */
export function insertEmptyStatement(table: RateLimitTable, rows: number, locks: boolean): Statement {
  const parameters = new Parameters()
  const prefix = parameters.text('prefix')
  const values = Array.from({ length: rows }, (_, place) => ({
    prefix,
    key: parameters.scoped(`${place}.`).text('key'),
    // Long ago, also by an injected clock: such a row counts as no row.
    expiresAt: sql<Date>`to_timestamp(0)`,
  }))
  const target = [table.prefix, table.key]
  const insert = builder.insert(table).values(values)
  const query = locks
    ? insert.onConflictDoUpdate({ target, set: { prefix: sql`excluded.prefix` }, setWhere: sql`false` })
    : insert.onConflictDoNothing({ target })
  return parameters.render(query.returning({ key: table.key }).getSQL())
}

/** The statement that removes those of the rows that have no state. It never waits for a row. */
export function removeEmptyShardStatement(table: RateLimitTable): Statement {
  const isEmpty = and(...STATE_COLUMNS.map((column) => isNull(table[column])))
  return removeLockedStatement(table, new Parameters(), isEmpty)
}

/** The statement that finds the keys of a prefix that expired longest ago, by the clocks of their servers. */
export function expiredStatement(table: RateLimitTable, keepEnded: boolean): Statement {
  const parameters = new Parameters()
  const expired = builder
    .select({ key: table.key })
    .from(table)
    .where(
      and(eq(table.prefix, parameters.text('prefix')), isExpired(table, keepEnded, parameters, sql`now()`)),
    )
    .orderBy(asc(table.expiresAt))
    .limit(MAX_SWEPT)
  return parameters.render(expired.getSQL())
}

/** The statement that deletes those of the keys that have expired. It never waits for a row. */
export function sweepShardStatement(table: RateLimitTable, keepEnded: boolean): Statement {
  const parameters = new Parameters()
  // Citus works out now() on the coordinator, and clock_timestamp() where the row is.
  return removeLockedStatement(
    table,
    parameters,
    isExpired(table, keepEnded, parameters, sql`clock_timestamp()`),
  )
}

export const removeWindows: Steps['removeWindows'] = (table, parameters, columns) => {
  const start = fromColumn('windowStart', table.windowStart)
  const read = { found: sql`${table.key}`.as('found'), began: start.as('began') }
  const row = lockedRow(table, read, [isOneOf(table, parameters)])
  const windows = sql`select found from ${callsFrom(parameters, ['key', 'start'], true)}
    join (${row}) as stored on stored.found = call.key and stored.began = call.start`
  const returned = sql.join(Object.values(columns), sql`, `)
  const removed = sql`${deleted(table, parameters)} returning ${returned}`
  return { found: link(FOUND, windows), removed }
}

const FOUND = 'ratelimit_found'

/** Deletes the rows that were found and locked. */
function deleted(table: RateLimitTable, parameters: Parameters): SQL {
  return sql`delete from ${table} using ${name(FOUND)}
    where ${isOneOf(table, parameters)} and ${table.key} = ${name('found', FOUND)}`
}

/** The statement that removes those rows of a shard that meet the condition after they are locked. */
function removeLockedStatement(
  table: RateLimitTable,
  parameters: Parameters,
  condition: SQL | undefined,
): Statement {
  const row = lockedRow(table, { found: sql`${table.key}`.as('found') }, [
    isOneOf(table, parameters),
    condition,
  ])
  return parameters.render(
    chain(
      [
        link(FOUND, row),
        link('ratelimit_deleted', sql`${deleted(table, parameters)} returning ${table.key}`),
      ],
      sql`select count(*) as deleted from ${name('ratelimit_deleted')}`,
    ),
  )
}
