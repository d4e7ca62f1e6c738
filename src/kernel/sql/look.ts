import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import { oidOf } from '../database/table-name.ts'
import type { Rules } from '../limits/algorithm.ts'
import { builder, type Link, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { decisionNumbers, lockedColumns } from './columns.ts'
import { guard, guardedStatement, type PlanGuard, transactionSettings } from './guard.ts'
import { advanced, BY_ITSELF, CLOCK_MS, type Level, OTHER } from './levels.ts'

export interface LookSource {
  readonly table: RateLimitTable
  readonly rules: Rules
  readonly injectedClock: boolean
  readonly guarded: boolean
  /** The numbers of which each call sends its own, because the limits of the calls differ. Default: none. */
  readonly differing?: readonly string[]
}

/**
 * The statement that looks at keys. It writes nothing and takes no lock. A key without a row has the state of a
 * new one. For a limit that does not start full, `holds` is then false.
 *
 * The clock is read once for each row.
 */
export function lookStatement(source: LookSource): Statement {
  const { table, rules, injectedClock, differing = [] } = source
  const parameters = new Parameters(differing)
  const guarding = guard([table], source.guarded, parameters)
  const columns = lockedColumns(table, rules)
  const row = builder
    .select(columns)
    .from(table)
    .where(sql`${table.prefix} = ${parameters.text('prefix')} and ${table.key} = call.key`)
  const rows: Level = {
    source: sql`${callsFrom(parameters, ['key', ...differing])} left join lateral (${row.getSQL()} ${BY_ITSELF}) as stored on true
      ${guarding.links.length > 0 ? sql`where ${guarding.fits(table)}` : sql``}`,
    columns: ['place', ...differing, ...Object.keys(columns)],
  }
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const secured = sql`pg_catalog.row_security_active(${oidOf(table)}) as ${name(SECURED)}`
  return lookFrom(rows, clock, source, parameters, guarding, [], [secured])
}

/** The column that says whether row level security applies, so that a row may be there and not be seen. */
export const SECURED = 'secured'

export function lookFrom(
  rows: Level,
  clock: SQL,
  { rules }: LookSource,
  parameters: Parameters,
  guarding: PlanGuard,
  links: readonly Link[],
  more: readonly SQL[] = [],
): Statement {
  const states = advanced(rules, rows, clock, parameters)
  const answer = ['place', ...(rules.startsFull ? [] : ['holds']), ...(rules.refusesOther ? [OTHER] : [])]
  return guardedStatement(parameters, guarding, transactionSettings('as the session'), {
    links,
    columns: [...answer.map((column) => name(column)), decisionNumbers(rules.algorithm, []), ...more],
    from: states.source,
  })
}
