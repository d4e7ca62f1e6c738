import { and, sql } from 'drizzle-orm'
import type { Statement } from '../../kernel/database/statement.ts'
import { builder, chain, isTheRow, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { exact, fromColumn } from '../../kernel/sql/columns.ts'
import { transactionSettings } from '../../kernel/sql/guard.ts'
import { clockOf, endOf, isMember, type MembersSource, rowsOfKey, seenIn } from './rows.ts'

const now = name('now')

/** The statement that lists the members of a key that count, or one of them. It locks nothing. */
export function listStatement(source: MembersSource, which: 'all' | 'one'): Statement {
  const { table } = source
  const parameters = new Parameters()
  const isAsked =
    which === 'all'
      ? sql`${rowsOfKey(table, parameters)} and ${table.key} <> ${parameters.text('head')}`
      : sql`${and(isTheRow(table, parameters), isMember(table))}`
  const seen = seenIn(table, now, parameters)
  const since = fromColumn('windowStart', table.windowStart)
  return parameters.render(
    chain(
      [link('ratelimit_clock', sql`select ${clockOf(source, parameters)} as now`)],
      sql`select key, ${exact(name('since'), name('seen'), name('ends'))} as numbers from (
        select ${table.key} as key, ${since} as since, ${seen} as seen, ${endOf(seen, parameters)} as ends, now
        from ${table} cross join ratelimit_clock where ${isAsked}
      ) as member where ends > now order by since, key`,
    ),
  )
}

/** The statement that removes a member. It says whether the member counted. */
export function removeStatement(source: MembersSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const clock = clockOf(source, parameters)
  const ends = endOf(seenIn(table, clock, parameters), parameters)
  const removed = builder
    .delete(table)
    .where(and(isTheRow(table, parameters), isMember(table)))
    .returning({ counted: sql`${ends} > ${clock}`.as('counted') })
  const settings = transactionSettings(source.commit)
  return parameters.render(
    chain(
      [...settings.links, link('ratelimit_removed', removed)],
      sql`select counted from ratelimit_removed${settings.join}`,
    ),
  )
}
