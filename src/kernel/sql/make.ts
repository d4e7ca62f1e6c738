import { and, sql } from 'drizzle-orm'
import type { Statement } from '../database/statement.ts'
import { link, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { decisionNumbers } from './columns.ts'
import { DECIDED, decided, grantedRow, isWritten, sentColumns } from './decided.ts'
import { guard, guardedStatement, transactionSettings } from './guard.ts'
import { BY_ITSELF, CLOCK_MS, fresh, type Level } from './levels.ts'
import { insertRow, newRows } from './rows.ts'
import type { WaitingSource } from './take.ts'

const WRITTEN = 'ratelimit_written'

/**
 * The statement that inserts missing rows, in the order of the keys.
 *
 * `decided` is false for a key whose row exists by then, and nothing was charged for it. A statement that does
 * not wait has no answer for keys whose rows exist. If another transaction is inserting one of the rows, it
 * waits for three milliseconds and then fails with 55P03.
 */
export function makeStatement(source: WaitingSource): Statement {
  const { table, injectedClock, action, waits, takesLess, differing = [] } = source
  // It meets no existing row.
  const rules = { ...source.rules, refusesOther: false }
  // For a new row, no window has paid, and no estimate waits to be settled.
  const sent = sentColumns(rules.algorithm, {
    action: typeof action === 'object' ? action : 'take',
    takesLess,
  })
  const columns = [...sent, ...differing]
  const parameters = new Parameters(columns)
  const guarding = guard([table], source.guarded && !waits, parameters)
  const settings = transactionSettings(source.commit, !waits)
  const prefix = parameters.text('prefix')
  const exists = sql`exists (select from ${table} where ${table.prefix} = ${prefix} and ${table.key} = call.key ${BY_ITSELF})`
  const condition = and(waits ? undefined : sql`not ${exists}`, guarding.fits(table))
  const calls: Level = {
    source: sql`${callsFrom(parameters, columns)}${condition ? sql` where ${condition}` : sql``}`,
    columns: ['place', ...columns],
  }

  const states = fresh(rules, calls, injectedClock ? parameters.number('clock') : CLOCK_MS, parameters)
  const decision = decided(rules.algorithm, source, states, parameters)

  const next = grantedRow(rules, source, parameters)
  const from = sql`${name(DECIDED)}${settings.join} where ${isWritten(rules, action)}`
  const written = insertRow(table, newRows(prefix, name('key', DECIDED), next, from))

  const made = sql`(not ${isWritten(rules, action)} or ${name('key', WRITTEN)} is not null) as decided`
  const answer = [name('place', DECIDED), decisionNumbers(rules.algorithm, ['granted']), made]
  const outcome = sql`${name(DECIDED)} left join ${name(WRITTEN)} on ${name('key', WRITTEN)} = ${name('key', DECIDED)}`
  return guardedStatement(parameters, guarding, settings, {
    links: [link(DECIDED, decision.query), link(WRITTEN, written)],
    columns: answer,
    from: guarding.links.length > 0 ? sql`(${outcome})` : outcome,
  })
}
