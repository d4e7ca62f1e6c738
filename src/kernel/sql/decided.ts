import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Expressions, Limiter, Numbers, Rules, StateColumn } from '../limits/algorithm.ts'
import { MAX_COUNT } from '../limits/limiter.ts'
import type { Snapshot } from '../limits/search.ts'
import { name, type Parameters } from './builder.ts'
import type { CallColumn } from './calls.ts'
import { forEach, MAX_TIME, onGrid, storedState, toColumn } from './columns.ts'
import { type ColumnByName, type Level, level, OTHER, paramsOf, type QueryLevel, stateOf } from './levels.ts'

/**
 * What a statement does to a row that it writes. `'take'` charges a rate, and `'reserve'` an estimate; both can
 * be denied. `'adjust'` gives back, charges into debt or settles an estimate, `'add'` adds to a balance, and
 * `'block'` blocks a key for as many milliseconds as the rate says; these are never denied. Wings have actions
 * of their own.
 */
export type RowAction = 'take' | 'reserve' | 'adjust' | 'add' | 'block' | OwnAction

/** What a wing does to a row that a statement writes. Each call of a list has another action. */
export interface OwnAction {
  /** The name of its statements. */
  readonly name: string
  /** What its statements use of each call, besides the key, the rate and the number of calls. */
  readonly sends: readonly ('within' | 'refundableUntil')[]
  /** Whether it changes what the next equal call gets, so that each is decided by itself. */
  readonly isAlone: boolean
  /** How many of the calls are granted, and the level below, which has what `next` needs. */
  decide(deciding: Deciding): { readonly below: Level; readonly granted: SQL }
  /** The state after the amount is taken. */
  next(taking: Taking): Expressions<StateColumn>
  /** The same in TypeScript, after the first of the equal calls. */
  after(limiter: Limiter, snapshot: Snapshot, call: OwnCall, calls: number): Numbers<StateColumn>
  /** The id that the call uses up, for its entry. */
  readonly id?: string
}

/** What a call asks of the own action of a wing. */
interface OwnCall {
  readonly rate: number
  readonly refundableUntil: number | null
}

/** What the own action of a wing decides by. */
export interface Deciding {
  readonly algorithm: AnyAlgorithm
  /** The level that has what is available. */
  readonly offered: Level
  /** They have the numbers of the calls too. */
  readonly parameters: Parameters
}

/** An amount that the own action of a wing takes. */
export interface Taking {
  readonly algorithm: AnyAlgorithm
  readonly amount: SQL<number>
  readonly of: ColumnByName
  readonly params: Expressions<string>
}

/** What the calls of a statement ask for. Calls share a statement only if they have one form. */
export interface Form {
  readonly action: RowAction
  /** Whether a call has an `atLeast`, and so may take less than its rate. For the others it is null. */
  readonly takesLess: boolean
}

export function sentColumns(
  { kind, settled }: AnyAlgorithm,
  { action, takesLess }: Form,
): readonly CallColumn[] {
  const charge = kind === 'window' ? 'paidWindowStart' : 'refundableUntil'
  return [
    ...(['key', 'rate', 'calls'] as const),
    ...(takesLess ? (['atLeast'] as const) : []),
    ...(action === 'adjust' ? ([charge, ...(settled ? (['reserved'] as const) : [])] as const) : []),
    ...(typeof action === 'object' ? action.sends : []),
  ]
}

export function payingStart(
  action: RowAction | 'look',
  parameters: Parameters,
): (() => SQL<number>) | undefined {
  return action === 'adjust' ? () => parameters.number('paidWindowStart') : undefined
}

/** The level that adds how much each key has, and how many of its equal calls are granted. */
export function decided(
  algorithm: AnyAlgorithm,
  { action, takesLess }: Form,
  advanced: Level,
  parameters: Parameters,
): QueryLevel {
  const { sql: formulas } = algorithm
  const params = paramsOf(algorithm, parameters)
  const [state, now] = [stateOf(), name('now')]
  const [rate, calls, slack] = [parameters.number('rate'), parameters.number('calls'), slackOf(algorithm)]
  const offered = level('offered', advanced, { available: formulas.available(state, now, params) })
  if (typeof action === 'object') {
    const { below, granted } = action.decide({ algorithm, offered, parameters })
    return level('decided', below, { granted: onlyWhereItApplies(granted) })
  }
  if (action === 'take' || action === 'reserve') {
    const whole = sql`floor((available${slack}) / ${rate})`
    const fitting = takesLess ? withRest(whole) : whole
    return level('decided', offered, { granted: onlyWhereItApplies(sql`least(${fitting}, ${calls})`) })
  }
  if (action === 'block') return level('decided', offered, { granted: onlyWhereItApplies(calls) })
  // A parameter must be in the text of the statement, so only what is used is made.
  const used = () => formulas.used(state, now, params)
  const counted = (action === 'add' && formulas.capacity?.(state, params)) || used()
  // A charge is refused if its count would be too large to be exact.
  const countable = sql`least(floor((${sql.raw(String(MAX_COUNT))}::float8 - (${counted})) / ${rate}), ${calls})`
  if (action === 'add') return level('decided', offered, { granted: onlyWhereItApplies(countable) })
  return level('decided', offered, {
    granted: onlyWhereItApplies(
      sql`case when ${rate} > 0::float8 then ${countable}
        when ${givesBack(algorithm, used(), parameters)} then ${calls} else 0 end`,
    ),
    ...lateColumn(algorithm, state, params, parameters),
  })

  /** One call more, if the calls before it leave enough for it. */
  function withRest(whole: SQL): SQL {
    const isEnough = sql`available - ${whole} * ${rate}${slack} >= ${parameters.number('atLeast')}`
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

export function slackOf({ tolerance }: AnyAlgorithm): SQL {
  return sql.raw(tolerance > 0 ? ` + ${tolerance}::float8` : '')
}

/**
 * Whether something can be given back. If the window that paid is known, only that window gets the refund. A
 * bucket that is full again by itself gets none.
 */
export function givesBack(
  { kind, tolerance }: AnyAlgorithm,
  used: SQL,
  parameters: Parameters,
  of: ColumnByName = name,
): SQL {
  const isUsed = sql`${used} > ${sql.raw(String(tolerance))}::float8`
  if (kind === 'bucket')
    return sql`${isUsed} and coalesce(${of('now')} < ${parameters.number('refundableUntil')}, true)`
  const paid = parameters.number('paidWindowStart')
  return sql`${isUsed} and coalesce(${of('window_start')} = ${paid}, ${paid} is null)`
}

/** Whether a refund comes late, but still changes the row. */
const LATE = 'late'

export function lateColumn(
  { sql: { late } }: AnyAlgorithm,
  state: Expressions<StateColumn>,
  params: Expressions<string>,
  parameters: Parameters,
): Readonly<Record<string, SQL>> {
  if (!late) return {}
  const changes = late.changes(state, parameters.number('paidWindowStart'), params)
  return { [LATE]: sql`coalesce(${parameters.number('rate')} < 0::float8 and ${changes}, false)` }
}

/** Whether a decision changes its row. */
export function isGranted({ sql: { late } }: AnyAlgorithm, action: RowAction, of: ColumnByName): SQL {
  const granted = sql`${of('granted')} > 0::float8`
  return late && action === 'adjust' ? sql`(${granted} or ${of(LATE)})` : granted
}

/** Whether a decision is written: if something is granted, or if a new row has to begin to fill. */
export function isWritten({ algorithm, startsFull, refusesOther }: Rules, action: RowAction): SQL {
  const granted = isGranted(algorithm, action, (column) => name(column, DECIDED))
  if (startsFull) return granted
  const begins = sql`(${granted} or ${name('holds', DECIDED)} is not true)`
  return refusesOther ? sql`${begins} and not ${name(OTHER, DECIDED)}` : begins
}

export const DECIDED = 'ratelimit_decided'

/** The row of the link `decided` after the granted calls. */
export function grantedRow(
  rules: Rules,
  { action, takesLess }: Form,
  all: Parameters,
): Record<StateColumn | 'expiresAt', SQL> {
  const parameters = all.inLink(DECIDED)
  const of: ColumnByName = (column) => name(column, DECIDED)
  const asked = sql<number>`${parameters.number('rate')} * ${of('granted')}`
  const amount = takesLess
    ? sql<number>`case when ${parameters.number('atLeast')} is null then ${asked} else least(${asked}, ${of('available')}) end`
    : asked
  return storedRow(rules, nextState(rules, action, amount, parameters, of), parameters)
}

export function storedRow(
  { algorithm, startsFull }: Rules,
  state: Expressions<StateColumn>,
  parameters: Parameters,
): Record<StateColumn | 'expiresAt', SQL> {
  return {
    ...storedState(algorithm, state),
    expiresAt: toColumn(
      'expiresAt',
      startsFull
        ? onGrid(algorithm.sql.expiresAt(state, paramsOf(algorithm, parameters)), parameters)
        : MAX_TIME,
    ),
  }
}

export function nextState(
  { algorithm }: Rules,
  action: RowAction,
  amount: SQL<number>,
  parameters: Parameters,
  of: ColumnByName,
): Expressions<StateColumn> {
  const params = paramsOf(algorithm, parameters)
  const { consume, add, block, late } = algorithm.sql
  const [state, now, available] = [stateOf(of), of('now'), of('available')]
  if (action === 'add' && add) return add(state, now, amount)
  if (action === 'block' && block) return block(state, now, parameters.number('rate'))
  if (typeof action === 'object') return action.next({ algorithm, amount, of, params })
  const reserved = reservedBy(algorithm, action, amount, parameters, of)
  const consumed = consume(state, now, available, amount, params, reserved)
  if (action !== 'adjust' || !late) return consumed
  const forgotten = late.forget(state, parameters.number('paidWindowStart'), params)
  return forEach(
    algorithm.columns,
    (column) => sql`case when ${of(LATE)} then ${forgotten[column]} else ${consumed[column]} end`,
  )
}

/**
 * The change of the reserved amount, if the algorithm keeps it. A settled estimate is released, if it was
 * charged to the same window.
 */
function reservedBy(
  { kind, settled }: AnyAlgorithm,
  action: RowAction,
  amount: SQL<number>,
  parameters: Parameters,
  of: ColumnByName,
): SQL<number> {
  if (settled && action === 'reserve') return amount
  if (!settled || action !== 'adjust') return sql`0::float8`
  const change = sql<number>`${of('granted')} * ${parameters.number('reserved')}`
  if (kind === 'bucket') return change
  const isPayer = sql`${of('window_start')} = ${parameters.number('paidWindowStart')}`
  return sql`case when ${isPayer} then ${change} else 0 end`
}
