import { and, sql } from 'drizzle-orm'
import type { Statement } from '../../kernel/database/statement.ts'
import { builder, isTheRow, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { exact, fromColumn } from '../../kernel/sql/columns.ts'
import { guard, guardedStatement, transactionSettings } from '../../kernel/sql/guard.ts'
import { clockOf, type OwnSource } from '../../shared/own-rows.ts'
import { endOf, isMember, rowsOfKey, seenIn } from './rows.ts'

const now = name('now')

/** The statement that finds the members of a key that count, or one of them. It locks nothing. */
export function listStatement(source: OwnSource, which: 'all' | 'one'): Statement {
  const { table } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const isAsked =
    which === 'all'
      ? sql`${rowsOfKey(table, parameters)} and ${table.key} <> ${parameters.text('head')}`
      : sql`${and(isTheRow(table, parameters), isMember(table))}`
  const seen = seenIn(table, now, parameters)
  const since = fromColumn('windowStart', table.windowStart)
  const numbers = exact(name('since'), name('seen'), name('ends'))
  return guardedStatement(parameters, guarding, transactionSettings('as the session'), {
    links: [link('ratelimit_clock', sql`select ${clockOf(source, parameters)} as now`)],
    columns: [name('key'), sql`${numbers} as numbers`],
    from: sql`(select * from (
        select ${table.key} as key, ${since} as since, ${seen} as seen, ${endOf(seen, parameters)} as ends, now
        from ${table} cross join ratelimit_clock where ${and(isAsked, guarding.fits(table))}
      ) as each where ends > now) as member`,
  })
}

/** The statement that removes a member. It says whether the member counted. */
export function removeStatement(source: OwnSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const clock = clockOf(source, parameters)
  const ends = endOf(seenIn(table, clock, parameters), parameters)
  const removed = builder
    .delete(table)
    .where(and(isTheRow(table, parameters), isMember(table), guarding.fits(table)))
    .returning({ counted: sql`${ends} > ${clock}`.as('counted') })
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links: [link('ratelimit_removed', removed)],
    columns: [name('counted')],
    from: sql`ratelimit_removed`,
  })
}
