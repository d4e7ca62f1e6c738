import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Rules, StateColumn } from '../algorithms/algorithm.ts'
import { MAX_COUNT } from '../algorithms/limiter.ts'
import { name, type Parameters } from './builder.ts'
import type { CallColumn } from './calls.ts'
import { forEach, SQL_NAMES, STATE_COLUMNS, toColumn } from './columns.ts'
import { MAX_TIME, onGrid } from './expiry.ts'
import { type Column, type Level, level, OTHER, paramsOf, type QueryLevel, stateOf } from './levels.ts'

/**
 * What a call does: `'take'` may be denied, and so may `'reserve'`, which takes an estimate. `'adjust'` gives
 * back, consumes into debt or settles an estimate, `'grant'` adds to a balance, and neither is ever denied.
 */
export type Intent = 'take' | 'reserve' | 'adjust' | 'grant'

/**
 * What is sent of each call of a statement that takes; `takesLess` if they take what there is, up to the rate.
 */
export function takenColumns(
  { kind, settled }: AnyAlgorithm,
  intent: Intent,
  takesLess: boolean,
): readonly CallColumn[] {
  const charge = kind === 'window' ? 'paidWindowStart' : 'refundableUntil'
  return [
    ...(['key', 'rate', 'calls'] as const),
    ...(takesLess ? (['atLeast'] as const) : []),
    ...(intent === 'adjust' ? ([charge, ...(settled ? (['reserved'] as const) : [])] as const) : []),
  ]
}

/** The numbers of a call: parameters of a statement for one key, columns of one for many. */
export interface CallNumbers {
  readonly rate: SQL<number>
  readonly calls: SQL<number>
  /** The least of a call that takes what there is, up to its rate. */
  readonly atLeast?: SQL<number> | undefined
  /** What a call that settles or gives back says of the charge before it. */
  readonly before: (what: 'paidWindowStart' | 'refundableUntil' | 'reserved') => SQL<number>
}

/** The numbers of the calls of a statement for many keys, of which `columns` are sent for each. */
export function callNumbers(
  columns: readonly CallColumn[],
  parameters: Parameters,
  of?: string,
): CallNumbers {
  return {
    rate: name('rate', of),
    calls: name('calls', of),
    atLeast: columns.includes('atLeast') ? name('atLeast', of) : undefined,
    before: (what) => (columns.includes(what) ? name(what, of) : parameters.number(what)),
  }
}

/** The start of the window that has paid, for calls that know it: those that settle or give back. */
export function paidBy(
  intent: Intent | 'look',
  before: CallNumbers['before'],
): (() => SQL<number>) | undefined {
  return intent === 'adjust' ? () => before('paidWindowStart') : undefined
}

/** The level with what each key has and how many of its equal calls are granted. */
export function decided(
  algorithm: AnyAlgorithm,
  intent: Intent,
  advanced: Level,
  { rate, calls, atLeast, before }: CallNumbers,
  parameters: Parameters,
): QueryLevel {
  const { sql: formulas, tolerance } = algorithm
  const params = paramsOf(algorithm, parameters)
  const [state, now] = [stateOf(), name('now')]
  const slack = sql.raw(tolerance > 0 ? ` + ${tolerance}::float8` : '')
  const offered = level('offered', advanced, { available: formulas.available(state, now, params) })
  if (intent === 'take' || intent === 'reserve') {
    const whole = sql`floor((available${slack}) / ${rate})`
    const fitting = atLeast ? withRest(whole, atLeast) : whole
    return level('decided', offered, { granted: onlyWhereItApplies(sql`least(${fitting}, ${calls})`) })
  }
  const used = formulas.used(state, now, params)
  const counted = intent === 'grant' ? (formulas.capacity?.(state) ?? used) : used
  // What cannot be counted is refused.
  const countable = sql`least(floor((${sql.raw(String(MAX_COUNT))}::float8 - (${counted})) / ${rate}), ${calls})`
  if (intent === 'grant') return level('decided', offered, { granted: onlyWhereItApplies(countable) })
  return level('decided', offered, {
    granted: onlyWhereItApplies(
      sql`case when ${rate} > 0::float8 then ${countable}
        when ${givesBack(algorithm, used, before)} then ${calls} else 0 end`,
    ),
  })

  /** One call more, if it gets enough of what those before it leave. */
  function withRest(whole: SQL, least: SQL<number>): SQL {
    const isEnough = sql`available - ${whole} * ${rate}${slack} >= ${least}`
    return sql`${whole} + case when ${isEnough} then 1::float8 else 0::float8 end`
  }

  function onlyWhereItApplies(grantedCalls: SQL): SQL {
    const conditions = [
      ...(algorithm.applies ? [algorithm.applies(now, params)] : []),
      ...(advanced.columns.includes(OTHER) ? [sql`not ${name(OTHER)}`] : []),
    ]
    if (conditions.length === 0) return grantedCalls
    return sql`case when ${sql.join(conditions, sql` and `)} then ${grantedCalls} else 0 end`
  }
}

/**
 * Whether something can be given back. If it is known which window paid, only that window gets it. A bucket
 * gets nothing after the time in which it has filled.
 */
export function givesBack({ kind, tolerance }: AnyAlgorithm, used: SQL, before: CallNumbers['before']): SQL {
  const isUsed = sql`${used} > ${sql.raw(String(tolerance))}::float8`
  if (kind === 'bucket')
    return sql`${isUsed} and coalesce(${name('now')} < ${before('refundableUntil')}, true)`
  const paid = before('paidWindowStart')
  return sql`${isUsed} and coalesce(${name('window_start')} = ${paid}, ${paid} is null)`
}

/**
 * Whether a decision is written: something was granted, or a state that does not start full begins to fill.
 */
export function isWritten({ startsFull, refusesOther }: Rules): SQL {
  const granted = sql`${name('granted', DECIDED)} > 0::float8`
  if (startsFull) return granted
  const begins = sql`(${granted} or ${name('holds', DECIDED)} is not true)`
  return refusesOther ? sql`${begins} and not ${name(OTHER, DECIDED)}` : begins
}

/** The name of the link that decides. */
export const DECIDED = 'ratelimit_decided'

/** How much the granted calls take together. */
export function grantedAmount({ rate, atLeast }: CallNumbers): SQL<number> {
  const asked = sql<number>`${rate} * ${name('granted', DECIDED)}`
  return atLeast ? sql<number>`least(${asked}, ${name('available', DECIDED)})` : asked
}

/** The row that the link `decided` has found, after the amount was taken. Columns by their names in Drizzle. */
export function nextRow(
  { algorithm, startsFull }: Rules,
  intent: Intent,
  amount: SQL<number>,
  before: CallNumbers['before'],
  parameters: Parameters,
  of: Column = (column) => name(column, DECIDED),
): Record<StateColumn | 'expiresAt', SQL> {
  const params = paramsOf(algorithm, parameters)
  const { consume, grant } = algorithm.sql
  const [state, now, available] = [stateOf(of), of('now'), of('available')]
  const reserved = algorithm.settled ? reservedBy(intent, amount, before, of) : sql<number>`0::float8`
  const next =
    intent === 'grant' && grant
      ? grant(state, now, amount)
      : consume(state, now, available, amount, params, reserved)
  return {
    ...forEach(STATE_COLUMNS, (column) =>
      toColumn(column, algorithm.columns.includes(column) ? next[column] : undefined),
    ),
    expiresAt: toColumn(
      'expiresAt',
      startsFull ? onGrid(algorithm.sql.expiresAt(next, params), parameters) : MAX_TIME,
    ),
  }
}

/** By how much more is reserved. What is settled is no longer reserved, if it was in the same window. */
function reservedBy(
  intent: Intent,
  amount: SQL<number>,
  before: CallNumbers['before'],
  of: Column,
): SQL<number> {
  if (intent !== 'adjust') return intent === 'reserve' ? amount : sql`0::float8`
  const isPayer = sql`${of('window_start')} = ${before('paidWindowStart')}`
  return sql`case when ${isPayer} then ${of('granted')} * ${before('reserved')} else 0 end`
}

/** The columns of an answer, by their names in SQL. */
export function answerColumns({ columns }: AnyAlgorithm): readonly string[] {
  return ['now', 'granted', ...columns.map((column) => SQL_NAMES[column])]
}
