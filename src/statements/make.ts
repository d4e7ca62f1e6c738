import { and, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Rules } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { builder, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import {
  answerColumns,
  callNumbers,
  DECIDED,
  decided,
  grantedAmount,
  isWritten,
  nextRow,
  type RowAction,
  takenColumns,
} from './decided.ts'
import { guard, guardedSelect } from './guard.ts'
import { BY_ITSELF, CLOCK_MS, fresh, type Level } from './levels.ts'
import { chain, link } from './link.ts'
import { type Commit, settingsOf } from './setting.ts'

const WRITTEN = 'ratelimit_written'

export interface MakeSource {
  readonly table: RateLimitTable
  readonly rules: Rules
  readonly injectedClock: boolean
  readonly commit: Commit
  readonly guarded: boolean
  readonly action: RowAction
  /** Whether the calls have an `atLeast`, and so may take less than their rate. */
  readonly takesLess?: boolean
  /** Whether it waits for a transaction that is inserting or holds one of the rows. */
  readonly waits: boolean
}

/**
 * The statement that inserts missing rows, in the order of the keys.
 *
 * `decided` is false for a key whose row exists by then, and nothing was charged for it. A statement that does
 * not wait has no answer for keys whose rows exist. If another transaction is inserting one of the rows, it
 * waits for three milliseconds and then fails with 55P03.
 */
export function makeStatement(source: MakeSource): Statement {
  const { table, injectedClock, action, waits, takesLess = false } = source
  // It meets no existing row.
  const rules = { ...source.rules, refusesOther: false }
  // For a new row, no window has paid, and no estimate waits to be settled.
  const columnsOfCalls = takenColumns(rules.algorithm, 'take', takesLess)
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded && !waits, parameters)
  const settings = settingsOf(source.commit, !waits)
  const prefix = parameters.text('prefix')
  const exists = sql`exists (select from ${table} where ${table.prefix} = ${prefix} and ${table.key} = call.key ${BY_ITSELF})`
  const condition = and(waits ? undefined : sql`not ${exists}`, guarding.fits(table))
  const calls: Level = {
    source: sql`${callsFrom(parameters, columnsOfCalls)}${condition ? sql` where ${condition}` : sql``}`,
    columns: ['place', ...columnsOfCalls],
  }

  const states = fresh(rules, calls, injectedClock ? parameters.number('clock') : CLOCK_MS, parameters)
  const decision = decided(
    rules.algorithm,
    action,
    states,
    callNumbers(columnsOfCalls, parameters),
    parameters,
  )

  const granted = callNumbers(columnsOfCalls, parameters, DECIDED)
  const next = nextRow(rules, action, grantedAmount(granted), granted.before, parameters)
  const written = builder
    .insert(table)
    .select(
      sql`select ${prefix}, ${name('key', DECIDED)}, ${next.count}, ${next.prevCount}, ${next.windowStart}, ${next.tokens},
        ${next.lastRefill}, ${next.expiresAt} from ${name(DECIDED)}${settings.join} where ${isWritten(rules)}`,
    )
    .onConflictDoNothing({ target: [table.prefix, table.key] })
    .returning({ key: table.key })

  const made = sql`(not ${isWritten(rules)} or ${name('key', WRITTEN)} is not null) as decided`
  const answer = [
    ...['place', ...answerColumns(rules.algorithm)].map((column) => name(column, DECIDED)),
    made,
  ]
  const outcome = sql`${name(DECIDED)} left join ${name(WRITTEN)} on ${name('key', WRITTEN)} = ${name('key', DECIDED)}`
  return parameters.render(
    chain(
      [...settings.links, ...guarding.links, link(DECIDED, decision.query), link(WRITTEN, written)],
      guardedSelect(guarding, answer, guarding.links.length > 0 ? sql`(${outcome})` : outcome, settings.join),
    ),
  )
}
