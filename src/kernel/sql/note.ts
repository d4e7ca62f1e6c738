import type { AnyAlgorithm, Expressions, Noted, StateColumn } from '../limits/algorithm.ts'
import type { Parameters } from './builder.ts'
import { type ColumnByName, paramsOf, stateOf } from './levels.ts'

// The row of an estimate with a name notes what the row of its limit has paid, in the same statement.

/** The columns that a row notes. */
export const PAID_COLUMNS: Readonly<Record<Noted, string>> = {
  rate: 'paid_rate',
  at: 'paid_at',
  before: 'paid_before',
  dryRun: 'paid_dry_run',
}

/** The state of a new row that notes. */
export function notedState(
  algorithm: AnyAlgorithm,
  of: ColumnByName,
  parameters: Parameters,
): Expressions<StateColumn> {
  const paid: Expressions<Noted> = {
    rate: of(PAID_COLUMNS.rate),
    at: of(PAID_COLUMNS.at),
    before: of(PAID_COLUMNS.before),
    dryRun: of(PAID_COLUMNS.dryRun),
  }
  return algorithm.sql.note?.(of('now'), paid, paramsOf(algorithm, parameters)) ?? stateOf(of)
}
