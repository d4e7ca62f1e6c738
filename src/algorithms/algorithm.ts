import type { SQL } from 'drizzle-orm'
import type { PeriodAt } from '../calendar.ts'

// The words used here. A row is what the table holds, times as Unix milliseconds. A state is the part of it that belongs
// to one algorithm. A state is settled when the windows that have passed by now have been left behind. An amount is
// rate times granted calls; a refund's is negative.

/** A number in SQL, always double precision. */
export type Expression = SQL<number> | SQL.Aliased<number>

/** The columns a state is made of. */
export type StateColumn = 'count' | 'prevCount' | 'windowStart' | 'tokens' | 'lastRefill'

export type Expressions<Name extends string> = { readonly [name in Name]: Expression }
export type Numbers<Name extends string> = { readonly [name in Name]: number }

/** The parameters that every algorithm has: its capacity, and the time in which a used-up limit is whole again. */
export type CommonParam = 'limit' | 'periodMs'

/**
 * An algorithm: arithmetic and nothing else. It is given the state, the time and the amount; it knows no clock, no table, no key.
 *
 * What decides and what is written are SQL expressions, for they run where the row is locked. When a limit fits or is whole
 * again is worked out in TypeScript from the state that the statement returns.
 */
export interface Algorithm<Column extends StateColumn, Param extends string, State = Expressions<Column>> {
  /** Also the name under which its statements are kept. */
  readonly name: string
  /** The columns of its state. A row in which another column is filled belongs to another algorithm. */
  readonly columns: readonly Column[]
  /** The column of its state that says when the row was written. */
  readonly writtenAt: Column & ('windowStart' | 'lastRefill')
  readonly params: readonly Param[]
  /** Whether it counts whole units only, so that a fractional rate is refused. */
  readonly whole: boolean
  /** By how much a rate may exceed what is available and be granted, for fractions are inexact. */
  readonly tolerance: number

  /**
   * Whether the parameters that were sent are those of `now`, for an algorithm whose parameters depend on it. Where not, nothing is
   * decided, and the statement runs again with those of the time that it has returned.
   */
  applies?(now: Expression, params: Expressions<Param | CommonParam>): SQL<boolean>
  /** Whether a row of this algorithm still counts at `now`. Where not, the state is fresh. */
  holds(state: Expressions<Column>, now: Expression, params: Expressions<Param | CommonParam>): SQL<boolean>
  /** The state of a row that holds, with windows that have passed by `now` left behind. */
  settle(state: Expressions<Column>, now: Expression, params: Expressions<Param | CommonParam>): State
  /** The state of a key that has none. */
  fresh(now: Expression, params: Expressions<Param | CommonParam>): State
  /** Whether a fresh state has all there is. Where not, the first check makes the row though it is denied, for else it never fills. */
  freshIsWhole(params: Expressions<Param | CommonParam>): SQL<boolean>
  /** How much there is to take of a settled state; below 0 in debt. */
  available(state: Expressions<Column>, now: Expression, params: Expressions<Param | CommonParam>): Expression
  /** How much of a settled state is used; more than the limit in debt. */
  used(state: Expressions<Column>, now: Expression, params: Expressions<Param | CommonParam>): Expression
  /** The most that was ever used in a settled state's window, for an algorithm that keeps it. */
  peak?(state: Expressions<Column>): Expression
  /** A settled state of which so much is `available`, after `amount` was taken at `now`, or given back when negative. */
  consume(
    state: Expressions<Column>,
    now: Expression,
    amount: Expression,
    available: Expression,
    params: Expressions<Param | CommonParam>,
  ): State
  /** The earliest time at which deleting the row loosens nothing. */
  expiresAt(state: Expressions<Column>, params: Expressions<Param | CommonParam>): Expression

  /** The same as `available`, of the state that a statement returned; `undone` of what was taken is not counted. */
  availableAt(
    state: Numbers<Column>,
    now: number,
    undone: number,
    params: Numbers<Param | CommonParam>,
  ): number
  /** The same as `used`. */
  usedAt(state: Numbers<Column>, now: number, params: Numbers<Param | CommonParam>): number
  /** When `rate`, which does not fit now, will fit if nothing else is consumed; `Infinity` where never. */
  fitsAt(state: Numbers<Column>, now: number, rate: number, params: Numbers<Param | CommonParam>): number
  /** When the limit will be whole if nothing else is consumed; `undone` of what was taken is not counted. */
  wholeAt(state: Numbers<Column>, now: number, undone: number, params: Numbers<Param | CommonParam>): number
}

/** An algorithm as the statements see it, which find its columns in `columns`. */
export type AnyAlgorithm = Algorithm<StateColumn, string, Partial<Expressions<StateColumn>>>

export type Params = Numbers<string> & Numbers<CommonParam>

/** An algorithm with its parameters: what the constructors on `Ratelimit` make. */
export interface Limiter {
  readonly algorithm: AnyAlgorithm
  readonly params: Params
  /** The calendar's period that holds a time: its start and end are parameters too. */
  readonly periodAt?: PeriodAt
}

/** The parameters of a limiter at a time. */
export function paramsAt({ params, periodAt }: Limiter, time: number): Params {
  if (!periodAt) return params
  const { start, end } = periodAt(time)
  return { ...params, periodStart: start, periodEnd: end }
}
