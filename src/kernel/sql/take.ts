import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../database/statement.ts'
import type { Rules } from '../limits/algorithm.ts'
import { builder, columnList, isDecidedRow, isTheRow, link, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { decisionNumbers, leftColumns, lockedColumns } from './columns.ts'
import { DECIDED, decided, type Form, grantedRow, isWritten, payingStart, sentColumns } from './decided.ts'
import { type Commit, guard, guardedStatement, type PlanGuard, transactionSettings } from './guard.ts'
import { advanced, CLOCK_MS, ENDED, OTHER } from './levels.ts'
import type { LookSource } from './look.ts'
import { lockedRow } from './rows.ts'

const LOCKED = 'ratelimit_locked'
const MAX_CALLS = sql.raw(String(Number.MAX_SAFE_INTEGER))

export interface TakeSource extends LookSource, Form {
  readonly commit: Commit
}

export interface WaitingSource extends TakeSource {
  /** Whether it waits for rows that other transactions hold or insert. If not, it skips them. */
  readonly waits: boolean
}

/** The statement that takes from the row of one key. If it can lock no row, it decides nothing. */
export function takeOneStatement(source: WaitingSource): Statement {
  const { table, rules, waits } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const stored = lockedColumns(table, rules)
  const isRow = isTheRow(table, parameters)
  const query = lockedRow(table, stored, [isRow, guarding.fits(table)], waits)
  const locked = { query, columns: Object.keys(stored), isRow, isRare: undefined }
  return takeFrom(locked, source, parameters, guarding)
}

/**
 * The statement that takes from the rows of many keys, in the order of the keys. It skips rows that others
 * hold.
 */
export function takeManyStatement(source: TakeSource): Statement {
  const { table, rules, differing = [] } = source
  const columns = [...sentColumns(rules.algorithm, source), ...differing]
  const parameters = new Parameters(columns)
  const guarding = guard([table], source.guarded, parameters)
  const stored = lockedColumns(table, rules)
  const calls = ['place', ...columns]
  const row = lockedRow(table, stored, [isTheRow(table, parameters, sql`call.key`)])
  const query = sql`select ${columnList(calls, 'call')}, ${columnList(Object.keys(stored), 'stored')}
    from ${callsFrom(parameters, columns)} cross join lateral (${row}) as stored
    ${guarding.links.length > 0 ? sql`where ${guarding.fits(table)}` : sql``}`
  // Always true. The planner assumes that a range matches few rows. It therefore expects one row and uses the
  // primary key, even if the table is small when the plan is made.
  const isRare = sql`${name('granted', DECIDED)} between 0::float8 and ${MAX_CALLS}::float8`
  const isRow = isDecidedRow(table, parameters, name('key', DECIDED))
  const locked = { query, columns: [...calls, ...Object.keys(stored)], isRow, isRare }
  return takeFrom(locked, source, parameters, guarding)
}

export interface Locked {
  readonly query: SQL
  readonly columns: readonly string[]
  readonly isRow: SQL | undefined
  /** A condition that every decided row meets. */
  readonly isRare: SQL | undefined
}

export function takeFrom(
  locked: Locked,
  source: TakeSource,
  parameters: Parameters,
  guarding: PlanGuard,
): Statement {
  const { table, rules, action, injectedClock } = source
  const states = advanced(
    rules,
    { source: name(LOCKED), columns: locked.columns },
    injectedClock ? parameters.number('clock') : CLOCK_MS,
    parameters,
    { withEnded: true, paid: payingStart(action, parameters) },
  )
  const decision = decided(rules.algorithm, source, states, parameters)
  const written = builder
    .update(table)
    .set({
      ...grantedRow(rules, source, parameters),
      ...leftColumns(rules.algorithm, table),
    })
    .from(name(DECIDED))
    .where(and(locked.isRow, isWritten(rules, action), locked.isRare, guarding.fits(table)))
  const place = locked.columns.filter((column) => column === 'place')
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links: [link(LOCKED, locked.query), link(DECIDED, decision.query), link('ratelimit_written', written)],
    columns: [...place.map((column) => name(column)), ...answerColumns(rules)],
    from: name(DECIDED),
  })
}

function answerColumns({ algorithm, refusesOther = false }: Rules): readonly SQL[] {
  return [
    decisionNumbers(algorithm, ['granted']),
    ...(algorithm.sql.ended ? [name(ENDED)] : []),
    ...(refusesOther ? [name(OTHER)] : []),
  ]
}
