import type { SQL } from 'drizzle-orm'
import type { AnyAlgorithm, Expressions, Noted, StateColumn } from '../algorithms/algorithm.ts'
import type { Parameters } from './builder.ts'
import { onGrid, storedState, toColumn } from './columns.ts'
import { type Column, paramsOf, stateOf } from './levels.ts'

// The row of an estimate with a name notes what the row of its limit has paid, in the same statement.

/** The columns that a row notes. */
export const PAID: Readonly<Record<Noted, string>> = {
  rate: 'paid_rate',
  at: 'paid_at',
  before: 'paid_before',
  passed: 'paid_passed',
}

/** The columns of a new row that notes. */
export function notedRow(
  algorithm: AnyAlgorithm,
  of: Column,
  parameters: Parameters,
): Record<StateColumn | 'expiresAt', SQL> {
  const params = paramsOf(algorithm, parameters)
  const paid: Expressions<Noted> = {
    rate: of(PAID.rate),
    at: of(PAID.at),
    before: of(PAID.before),
    passed: of(PAID.passed),
  }
  const state = algorithm.sql.note?.(of('now'), paid, params) ?? stateOf(of)
  return {
    ...storedState(algorithm, state),
    expiresAt: toColumn('expiresAt', onGrid(algorithm.sql.expiresAt(state, params), parameters)),
  }
}
