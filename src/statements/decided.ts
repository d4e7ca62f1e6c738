import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Rules, StateColumn } from '../algorithms/algorithm.ts'
import { MAX_COUNT } from '../algorithms/limiter.ts'
import { name, type Parameters } from './builder.ts'
import type { CallColumn } from './calls.ts'
import { forEach, SQL_NAMES, STATE_COLUMNS, toColumn } from './columns.ts'
import { MAX_TIME, onGrid } from './expiry.ts'
import { type Column, type Level, level, OTHER, paramsOf, type QueryLevel, stateOf } from './levels.ts'

/**
 * What a statement does to a row that it writes. `'take'` charges a rate, and `'reserve'` an estimate; both can
 * be denied. `'adjust'` gives back, charges into debt or settles an estimate, and `'grant'` adds to a balance;
 * both are never denied.
 */
export type RowAction = 'take' | 'reserve' | 'adjust' | 'grant'

/** The values that a statement for many keys sends for each call. With `takesLess`, calls have an `atLeast`. */
export function takenColumns(
  { kind, settled }: AnyAlgorithm,
  action: RowAction,
  takesLess: boolean,
): readonly CallColumn[] {
  const charge = kind === 'window' ? 'paidWindowStart' : 'refundableUntil'
  return [
    ...(['key', 'rate', 'calls'] as const),
    ...(takesLess ? (['atLeast'] as const) : []),
    ...(action === 'adjust' ? ([charge, ...(settled ? (['reserved'] as const) : [])] as const) : []),
  ]
}

/** The numbers of a call: parameters in a statement for one key, columns in a statement for many. */
export interface CallNumbers {
  readonly rate: SQL<number>
  readonly calls: SQL<number>
  /** The least that is worth granting. */
  readonly atLeast?: SQL<number> | undefined
  /** For a call that settles or gives back: a number of the charge before it. */
  readonly before: (what: 'paidWindowStart' | 'refundableUntil' | 'reserved') => SQL<number>
}

/** The numbers of the calls in a statement for many keys. `columns` are those that differ between calls. */
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

/** The start of the window that paid, for calls that settle or give back. */
export function paidBy(
  action: RowAction | 'look',
  before: CallNumbers['before'],
): (() => SQL<number>) | undefined {
  return action === 'adjust' ? () => before('paidWindowStart') : undefined
}

/** The level that adds how much each key has, and how many of its equal calls are granted. */
export function decided(
  algorithm: AnyAlgorithm,
  action: RowAction,
  advanced: Level,
  { rate, calls, atLeast, before }: CallNumbers,
  parameters: Parameters,
): QueryLevel {
  const { sql: formulas, tolerance } = algorithm
  const params = paramsOf(algorithm, parameters)
  const [state, now] = [stateOf(), name('now')]
  const slack = sql.raw(tolerance > 0 ? ` + ${tolerance}::float8` : '')
  const offered = level('offered', advanced, { available: formulas.available(state, now, params) })
  if (action === 'take' || action === 'reserve') {
    const whole = sql`floor((available${slack}) / ${rate})`
    const fitting = atLeast ? withRest(whole, atLeast) : whole
    return level('decided', offered, { granted: onlyWhereItApplies(sql`least(${fitting}, ${calls})`) })
  }
  const used = formulas.used(state, now, params)
  const counted = action === 'grant' ? (formulas.capacity?.(state) ?? used) : used
  // A charge is refused if its count would be too large to be exact.
  const countable = sql`least(floor((${sql.raw(String(MAX_COUNT))}::float8 - (${counted})) / ${rate}), ${calls})`
  if (action === 'grant') return level('decided', offered, { granted: onlyWhereItApplies(countable) })
  return level('decided', offered, {
    granted: onlyWhereItApplies(
      sql`case when ${rate} > 0::float8 then ${countable}
        when ${givesBack(algorithm, used, before)} then ${calls} else 0 end`,
    ),
  })

  /** One call more, if the calls before it leave enough for it. */
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
 * Whether something can be given back. If the window that paid is known, only that window gets the refund. A
 * bucket that is full again by itself gets none.
 */
export function givesBack({ kind, tolerance }: AnyAlgorithm, used: SQL, before: CallNumbers['before']): SQL {
  const isUsed = sql`${used} > ${sql.raw(String(tolerance))}::float8`
  if (kind === 'bucket')
    return sql`${isUsed} and coalesce(${name('now')} < ${before('refundableUntil')}, true)`
  const paid = before('paidWindowStart')
  return sql`${isUsed} and coalesce(${name('window_start')} = ${paid}, ${paid} is null)`
}

/** Whether a decision is written: if something is granted, or if a new row has to begin to fill. */
export function isWritten({ startsFull, refusesOther }: Rules): SQL {
  const granted = sql`${name('granted', DECIDED)} > 0::float8`
  if (startsFull) return granted
  const begins = sql`(${granted} or ${name('holds', DECIDED)} is not true)`
  return refusesOther ? sql`${begins} and not ${name(OTHER, DECIDED)}` : begins
}

/** The name of the link that decides. */
export const DECIDED = 'ratelimit_decided'

/** The amount that the granted calls take together. */
export function grantedAmount({ rate, atLeast }: CallNumbers): SQL<number> {
  const asked = sql<number>`${rate} * ${name('granted', DECIDED)}`
  return atLeast ? sql<number>`least(${asked}, ${name('available', DECIDED)})` : asked
}

/** The row of the link `decided` after the amount is taken. Its columns have their names in Drizzle. */
export function nextRow(
  { algorithm, startsFull }: Rules,
  action: RowAction,
  amount: SQL<number>,
  before: CallNumbers['before'],
  parameters: Parameters,
  of: Column = (column) => name(column, DECIDED),
): Record<StateColumn | 'expiresAt', SQL> {
  const params = paramsOf(algorithm, parameters)
  const { consume, grant } = algorithm.sql
  const [state, now, available] = [stateOf(of), of('now'), of('available')]
  const reserved = algorithm.settled
    ? reservedBy(algorithm, action, amount, before, of)
    : sql<number>`0::float8`
  const next =
    action === 'grant' && grant
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

/** The change of the reserved amount. A settled estimate is released, if it was charged to the same window. */
function reservedBy(
  { kind }: AnyAlgorithm,
  action: RowAction,
  amount: SQL<number>,
  before: CallNumbers['before'],
  of: Column,
): SQL<number> {
  if (action !== 'adjust') return action === 'reserve' ? amount : sql`0::float8`
  const change = sql<number>`${of('granted')} * ${before('reserved')}`
  if (kind === 'bucket') return change
  const isPayer = sql`${of('window_start')} = ${before('paidWindowStart')}`
  return sql`case when ${isPayer} then ${change} else 0 end`
}

/** The columns of an answer, by their names in SQL. */
export function answerColumns({ columns }: AnyAlgorithm): readonly string[] {
  return ['now', 'granted', ...columns.map((column) => SQL_NAMES[column])]
}
