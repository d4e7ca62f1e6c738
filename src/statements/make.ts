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
  type Intent,
  isWritten,
  nextRow,
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
  readonly intent: Intent
  /** Whether the calls take what there is, if there is less than their rate. */
  readonly takesLess?: boolean
  /** Whether it waits for another transaction that is making, or holds, one of the rows. */
  readonly waits: boolean
}

/**
 * The statement that makes rows that do not exist, in the order of the keys.
 *
 * `decided` is false for a key whose row was there by then: nothing was charged for it. A statement that does
 * not wait has no answer for keys whose rows exist. If another transaction is just making one of the rows, it
 * waits three milliseconds and then fails with 55P03.
 */
export function makeStatement(source: MakeSource): Statement {
  const { table, injectedClock, intent, waits, takesLess = false } = source
  // It meets no row.
  const rules = { ...source.rules, refusesOther: false }
  // Of a row that is made, no window has paid for anything, and nothing in it waits to be settled.
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
    intent,
    states,
    callNumbers(columnsOfCalls, parameters),
    parameters,
  )

  const granted = callNumbers(columnsOfCalls, parameters, DECIDED)
  const next = nextRow(rules, intent, grantedAmount(granted), granted.before, parameters)
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
