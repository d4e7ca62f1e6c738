import { and, eq, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Rules } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { builder, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { lockedColumns } from './columns.ts'
import {
  answerColumns,
  type CallNumbers,
  callNumbers,
  DECIDED,
  decided,
  grantedAmount,
  isWritten,
  nextRow,
  paidBy,
  type RowAction,
  takenColumns,
} from './decided.ts'
import { guard, guardedSelect } from './guard.ts'
import { advanced, CLOCK_MS, ENDED, type Level, OTHER } from './levels.ts'
import { chain, link } from './link.ts'
import { type Commit, settingsOf } from './setting.ts'

const LOCKED = 'ratelimit_locked'
const MAX_CALLS = sql.raw(String(Number.MAX_SAFE_INTEGER))

export interface TakeManySource {
  readonly table: RateLimitTable
  readonly rules: Rules
  /** Whether the time is a parameter instead of the database's clock. */
  readonly injectedClock: boolean
  readonly commit: Commit
  /** Whether it does nothing and returns the size if the table does not have the expected size. */
  readonly guarded: boolean
  readonly action: RowAction
  /** Whether the calls have an `atLeast`, and so may take less than their rate. */
  readonly takesLess?: boolean
}

export interface TakeOneSource extends TakeManySource {
  /** Whether it waits for a row that another transaction holds. If not, it skips the row. */
  readonly waits: boolean
}

/** The statement that takes from the row of one key. If it can lock no row, it decides nothing. */
export function takeOneStatement(source: TakeOneSource): Statement {
  const { table, rules, action, waits, injectedClock, takesLess = false } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const settings = settingsOf(source.commit)
  const columns = lockedColumns(table, rules)
  const isTheRow = and(eq(table.prefix, parameters.text('prefix')), eq(table.key, parameters.text('key')))

  const locked = builder
    .select(columns)
    .from(table)
    .where(and(isTheRow, guarding.fits(table)))
    .for('update', waits ? {} : { skipLocked: true })

  const rows: Level = { source: name(LOCKED), columns: Object.keys(columns) }
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const before: CallNumbers['before'] = (what) => parameters.number(what)
  const states = advanced(rules, rows, clock, parameters, { withEnded: true, paid: paidBy(action, before) })
  const numbers = {
    rate: parameters.number('rate'),
    calls: parameters.number('calls'),
    atLeast: takesLess ? parameters.number('atLeast') : undefined,
    before,
  }
  const decision = decided(rules.algorithm, action, states, numbers, parameters)

  const written = builder
    .update(table)
    .set(nextRow(rules, action, grantedAmount(numbers), numbers.before, parameters))
    .from(name(DECIDED))
    .where(and(isTheRow, isWritten(rules), guarding.fits(table)))

  const answer = answerOf(rules).map((column) => name(column))
  return parameters.render(
    chain(
      [
        ...settings.links,
        ...guarding.links,
        link(LOCKED, locked),
        link(DECIDED, decision.query),
        link('ratelimit_written', written),
      ],
      guardedSelect(guarding, answer, name(DECIDED), settings.join),
    ),
  )
}

/**
 * The statement that takes from the rows of many keys, in the order of the keys. It skips rows that others
 * hold.
 */
export function takeManyStatement(source: TakeManySource): Statement {
  const { table, rules, injectedClock, action, takesLess = false } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const settings = settingsOf(source.commit)
  const columns = lockedColumns(table, rules)
  const columnsOfCalls = takenColumns(rules.algorithm, action, takesLess)
  const calls = ['place', ...columnsOfCalls]

  const row = builder
    .select(columns)
    .from(table)
    .where(and(eq(table.prefix, parameters.text('prefix')), eq(table.key, sql`call.key`)))
    .for('update', { skipLocked: true })
  const columnsOf = (alias: string, names: readonly string[]) => names.map((column) => name(column, alias))
  const locked = sql`select ${sql.join([...columnsOf('call', calls), ...columnsOf('stored', Object.keys(columns))], sql`, `)}
    from ${callsFrom(parameters, columnsOfCalls)} cross join lateral (${row.getSQL()}) as stored
    ${guarding.links.length > 0 ? sql`where ${guarding.fits(table)}` : sql``}`

  const rows: Level = {
    source: name(LOCKED),
    columns: [...calls, ...Object.keys(columns)],
  }
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const numbers = callNumbers(columnsOfCalls, parameters)
  const states = advanced(rules, rows, clock, parameters, {
    withEnded: true,
    paid: paidBy(action, numbers.before),
  })
  const granted = callNumbers(columnsOfCalls, parameters, DECIDED)
  const decision = decided(rules.algorithm, action, states, numbers, parameters)

  // Always true. The planner assumes that a range matches few rows. So it expects one row and uses the primary
  // key, even if the table is small when the plan is made.
  const isRare = sql`${name('granted', DECIDED)} between 0::float8 and ${MAX_CALLS}::float8`
  const isTheRow = and(
    eq(table.prefix, parameters.text('prefix')),
    eq(table.key, sql`${name('key', DECIDED)}`),
  )
  const written = builder
    .update(table)
    .set(nextRow(rules, action, grantedAmount(granted), granted.before, parameters))
    .from(name(DECIDED))
    .where(and(isTheRow, isWritten(rules), isRare, guarding.fits(table)))

  const answer = ['place', ...answerOf(rules)].map((column) => name(column))
  return parameters.render(
    chain(
      [
        ...settings.links,
        ...guarding.links,
        link(LOCKED, locked),
        link(DECIDED, decision.query),
        link('ratelimit_written', written),
      ],
      guardedSelect(guarding, answer, name(DECIDED), settings.join),
    ),
  )
}

function answerOf({ algorithm, refusesOther = false }: Rules): readonly string[] {
  return [
    ...answerColumns(algorithm),
    ...(algorithm.sql.ended ? [ENDED] : []),
    ...(refusesOther ? [OTHER] : []),
  ]
}
