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
  type Intent,
  isWritten,
  nextRow,
  paidBy,
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
  /** The time is sent along instead of being read. */
  readonly injectedClock: boolean
  readonly commit: Commit
  /** Whether it does nothing, and says so, if the table does not have the size that the caller believes. */
  readonly guarded: boolean
  readonly intent: Intent
  /** Whether the calls take what there is, if there is less than their rate. */
  readonly takesLess?: boolean
}

export interface TakeOneSource extends TakeManySource {
  /** Whether it waits for a row that another transaction holds, or leaves it out. */
  readonly waits: boolean
}

/** The statement that takes from one key's row. It decides nothing if there is no row that it can lock. */
export function takeOneStatement(source: TakeOneSource): Statement {
  const { table, rules, intent, waits, injectedClock, takesLess = false } = source
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
  const states = advanced(rules, rows, clock, parameters, { tellsEnded: true, paid: paidBy(intent, before) })
  const numbers = {
    rate: parameters.number('rate'),
    calls: parameters.number('calls'),
    atLeast: takesLess ? parameters.number('atLeast') : undefined,
    before,
  }
  const decision = decided(rules.algorithm, intent, states, numbers, parameters)

  const written = builder
    .update(table)
    .set(nextRow(rules, intent, grantedAmount(numbers), numbers.before, parameters))
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
 * The statement that takes from many keys' rows, in the order of the keys. It leaves out the rows that others
 * hold.
 */
export function takeManyStatement(source: TakeManySource): Statement {
  const { table, rules, injectedClock, intent, takesLess = false } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const settings = settingsOf(source.commit)
  const columns = lockedColumns(table, rules)
  const columnsOfCalls = takenColumns(rules.algorithm, intent, takesLess)
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
    tellsEnded: true,
    paid: paidBy(intent, numbers.before),
  })
  const granted = callNumbers(columnsOfCalls, parameters, DECIDED)
  const decision = decided(rules.algorithm, intent, states, numbers, parameters)

  // Always true. The planner assumes that a range is rare. So it expects one row and uses the primary key,
  // even if the table is small when the plan is made.
  const isRare = sql`${name('granted', DECIDED)} between 0::float8 and ${MAX_CALLS}::float8`
  const isTheRow = and(
    eq(table.prefix, parameters.text('prefix')),
    eq(table.key, sql`${name('key', DECIDED)}`),
  )
  const written = builder
    .update(table)
    .set(nextRow(rules, intent, grantedAmount(granted), granted.before, parameters))
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
