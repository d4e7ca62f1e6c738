import { and, isNull, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import { builder, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { STATE_COLUMNS } from './columns.ts'
import { chain } from './link.ts'
import { type Commit, settingsOf } from './setting.ts'

// Keys of many prefixes: limitAll locks rows of several limiters in one order.

const NAMES = ['prefix', 'key'] as const

/**
 * The statement that inserts the missing rows of many calls and locks all of their rows, in one order.
 *
 * A made row has no state, and is read as if it were not there. The update never happens, but Postgres locks
 * the row before it finds that out. Returns the rows that it made.
 *
 * It is the first statement of its transaction, so it also sets how the transaction commits.
 */
export function lockStatement(table: RateLimitTable, commit: Commit): Statement {
  const parameters = new Parameters()
  const settings = settingsOf(commit)
  const made = builder
    .insert(table)
    .select(
      sql`select call.prefix, call.key, null::bigint, null::bigint, null::timestamptz, null::float8, null::timestamptz, now()
        from ${callsFrom(parameters, NAMES)}${settings.join}`,
    )
    .onConflictDoUpdate({
      target: [table.prefix, table.key],
      set: { prefix: sql`excluded.prefix` },
      setWhere: sql`false`,
    })
    .returning({ prefix: table.prefix, key: table.key })
  const { links } = settings
  return parameters.render(links.length > 0 ? chain(links, made.getSQL()) : made.getSQL())
}

/** The statement that removes rows that were inserted and left without a state. */
export function removeEmptyStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const removed = builder.delete(table).where(
    and(
      sql`(${table.prefix}, ${table.key}) in (select ${name('prefix', 'call')}, ${name('key', 'call')}
          from ${callsFrom(parameters, NAMES)})`,
      ...STATE_COLUMNS.map((column) => isNull(table[column])),
    ),
  )
  return parameters.render(removed.getSQL())
}
