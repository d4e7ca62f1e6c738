import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Rules } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { builder, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { lockedColumns } from './columns.ts'
import { answerColumns } from './decided.ts'
import { guard, guardedSelect } from './guard.ts'
import { advanced, BY_ITSELF, CLOCK_MS, type Level, OTHER } from './levels.ts'
import { chain } from './link.ts'

export interface LookSource {
  readonly table: RateLimitTable
  readonly rules: Rules
  readonly injectedClock: boolean
  readonly guarded: boolean
}

/**
 * The statement that looks at keys. It writes nothing and takes no lock. A key without a row has the state of a
 * new one. For a limit that does not start full, `holds` is then false.
 *
 * The clock is read once for each row.
 */
export function lookStatement(source: LookSource): Statement {
  const { table, rules, injectedClock } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const columns = lockedColumns(table, rules)
  const row = builder
    .select(columns)
    .from(table)
    .where(sql`${table.prefix} = ${parameters.text('prefix')} and ${table.key} = call.key`)
  const rows: Level = {
    source: sql`${callsFrom(parameters, ['key'])} left join lateral (${row.getSQL()} ${BY_ITSELF}) as stored on true
      ${guarding.links.length > 0 ? sql`where ${guarding.fits(table)}` : sql``}`,
    columns: ['place', ...Object.keys(columns)],
  }
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const states = advanced(rules, rows, clock, parameters)
  const held = rules.startsFull ? [] : ['holds']
  const answer = [
    'place',
    ...held,
    ...(rules.refusesOther ? [OTHER] : []),
    ...answerColumns(rules.algorithm).filter((column) => column !== 'granted'),
  ]
  const select = guardedSelect(
    guarding,
    answer.map((column) => name(column)),
    states.source,
    sql``,
  )
  return parameters.render(guarding.links.length > 0 ? chain(guarding.links, select) : select)
}
