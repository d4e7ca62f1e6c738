import { type SQL, sql } from 'drizzle-orm'
import type { Expression } from './algorithm.ts'

// Two processes may know different time zone data, and then one of them begins a period up to an hour before
// the other. The start in the row wins: the row counts for the period that begins up to an hour later. Only a
// start full quarters of an hour before the period can be one. Periods of an hour or less are left out.

const MAX_DRIFT_MS = 3_600_000
const QUARTER_MS = 900_000

const MAX_DRIFT = sql.raw(`${MAX_DRIFT_MS}::float8`)
const QUARTER = sql.raw(`${QUARTER_MS}::float8`)

/** How far the starts of one period may be apart. */
export function driftOf(periodMs: Expression): Expression {
  return sql`least(greatest(${periodMs} - ${MAX_DRIFT}, 0::float8), ${MAX_DRIFT})`
}

/** Whether `start` is at most an hour away from where a period begins, on either side. */
export function isNear(start: Expression, begins: Expression, periodMs: Expression): SQL<boolean> {
  const apart = sql`abs(${start} - ${begins})`
  return sql`(${apart} <= ${driftOf(periodMs)} and ${apart} / ${QUARTER} = floor(${apart} / ${QUARTER}))`
}

/** The same formula on numbers. */
export function isNearNumber(start: number, begins: number, periodMs: number): boolean {
  const apart = Math.abs(start - begins)
  const drift = Math.min(Math.max(periodMs - MAX_DRIFT_MS, 0), MAX_DRIFT_MS)
  return apart <= drift && apart % QUARTER_MS === 0
}
