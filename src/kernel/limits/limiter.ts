import { type SQL, sql } from 'drizzle-orm'
import type {
  Algorithm,
  AnyAlgorithm,
  Expression,
  Limiter,
  Numbers,
  Params,
  Period,
  StateColumn,
  StoredLimiter,
} from './algorithm.ts'

/**
 * Rows expire on a grid of an eighth of the period, so that most updates leave the indexed column as it is
 * (HOT).
 */
const GRID_SHARE = 8
const MIN_GRID_MS = 1000

/** The most that a count can be: a double represents all whole numbers up to here. */
export const MAX_COUNT: number = Number.MAX_SAFE_INTEGER

/** A limiter of the algorithm. `name` distinguishes limiters that have the same parameters. */
export function limiterOf<Column extends StateColumn, Param extends string>(
  given: Algorithm<Column, Param>,
  own: Numbers<string> & Numbers<'limit' | 'periodMs'>,
  calendar: Pick<StoredLimiter, 'periodAt' | 'withTokens'> & { readonly name?: string } = {},
): StoredLimiter {
  // Its states have only its own columns, and it reads no others.
  const algorithm = given as unknown as AnyAlgorithm
  const { name = '', ...periods } = calendar
  const expiryGridMs = Math.max(MIN_GRID_MS, Math.floor(own.periodMs / GRID_SHARE))
  // A window without a limit denies calls that it cannot count.
  const params = { ...own, limit: Math.min(own.limit, MAX_COUNT), expiryGridMs }
  const signature = `${algorithm.name} ${Object.values(own).join()} ${name}`
  const period = algorithm.sql.isOfPeriod ? `${own.periodMs} ${name}` : ''
  return {
    stored: true,
    algorithm,
    params,
    signature,
    rows: `${algorithm.columns.join()} ${period}`,
    startsFull: startsFull(algorithm, params),
    limit: own.limit,
    windowMs: periods.periodAt ? undefined : own.periodMs,
    ...periods,
  }
}

function startsFull(algorithm: AnyAlgorithm, params: Params): boolean {
  return algorithm.numbers.available(freshState({ algorithm }, 0, params), 0, params) >= params.limit
}

/** The state of a key that has no row. */
export function freshState(
  { algorithm }: Pick<Limiter, 'algorithm'>,
  now: number,
  params: Params,
): Numbers<StateColumn> {
  return algorithm.numbers.fresh(now, params)
}

/** Whether it counts without a limit. A balance has a limit: the granted units. */
export function isEndless({ limit, algorithm }: Limiter): boolean {
  return limit === Number.POSITIVE_INFINITY && algorithm.numbers.capacity === undefined
}

export function sameLimiter(one: StoredLimiter, other: StoredLimiter): boolean {
  return one === other || one.signature === other.signature
}

export function paramsAt({ params, periodAt, algorithm }: StoredLimiter, time: number): Params {
  if (!periodAt) return params
  const { start, end } = periodAt(time)
  // This runs for each check. To add names to a spread object takes V8 thirty times as long.
  const period = { periodStart: start, periodEnd: end, nextEnd: periodAt(end).end, ...params }
  return algorithm.params.includes('previousStart')
    ? { previousStart: periodAt(start - 1).start, ...period }
    : period
}

/** The period of a row that began to count at `start`, for an algorithm that has periods. */
export function periodFrom({ params, periodAt }: StoredLimiter, start: number): Period {
  if (!periodAt) return { start, end: start + params.periodMs }
  const { end } = periodAt(start)
  // Another process has begun the next period before this one would.
  return { start, end: isNearNumber(start, end, params['driftMs']) ? periodAt(end).end : end }
}

/** When the period began that the parameters are for, as the row says if it began to count then. */
export function startIn({ periodStart, driftMs }: Params, rowStart: number): number {
  if (periodStart === undefined || isNearNumber(rowStart, periodStart, driftMs)) return rowStart
  return periodStart
}

/** Whether a key has several rows. */
export function hasSeveralRows(limiter: Limiter): boolean {
  return limiter.stored && limiter.algorithm.hasSeveralRows === true
}

/** Whether it has periods: fixed and calendar windows do. */
export function hasPeriods(limiter: Limiter): limiter is StoredLimiter {
  return limiter.stored && limiter.algorithm.hasPeriods === true
}

/** Whether `time` lies in the period that the parameters are for. */
export function appliesAt(params: Params, time: number): boolean {
  const { periodStart = Number.NEGATIVE_INFINITY, periodEnd = Number.POSITIVE_INFINITY } = params
  return time >= periodStart && time < periodEnd
}

// Two processes may know different time zone data, and then one of them begins a period up to an hour before
// the other. The start in the row wins: the row counts for the period that begins up to an hour later. Only a
// start full quarters of an hour before the period can be one.

const QUARTER_MS = 900_000

const QUARTER = sql.raw(`${QUARTER_MS}::float8`)

/** Whether `start` is at most the drift away from where a period begins, on either side. */
export function isNear(start: Expression, begins: Expression, driftMs: Expression): SQL<boolean> {
  const apart = sql`abs(${start} - ${begins})`
  return sql`(${apart} <= ${driftMs} and ${apart} / ${QUARTER} = floor(${apart} / ${QUARTER}))`
}

export function isNearNumber(start: number, begins: number, driftMs: number = 0): boolean {
  const apart = Math.abs(start - begins)
  return apart <= driftMs && apart % QUARTER_MS === 0
}
