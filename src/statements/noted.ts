import { sql } from 'drizzle-orm'
import type { Expressions, Noted } from '../algorithms/algorithm.ts'
import { name, type Parameters } from './builder.ts'
import { type Column, level, paramsOf, type QueryLevel, stateOf } from './levels.ts'
import { amountOf, at, type ListRow, type PlacedRow } from './list-row.ts'
import { PAID } from './note.ts'
import { SHARE } from './shares.ts'

/**
 * The levels that add what rows note, if one of them does.
 *
 * @param sharing The places of the rows that share a rate; below 0 for a limit without a row.
 */
export function withNotes(
  rows: readonly PlacedRow[],
  sharing: readonly number[] | undefined,
  decided: QueryLevel,
  parameters: Parameters,
): QueryLevel {
  let noted = decided
  for (const { row, place } of rows) {
    if (row.notes === undefined) continue
    const payer = rows.find((other) => other.place === row.notes)
    const paid = payer ? paidBy(payer) : sharing ? restOf(sharing, parameters) : NOTHING
    const columns = Object.entries(PAID).map(([each, column]) => [at(place, column), paid[each as Noted]])
    noted = level('noted', noted, Object.fromEntries(columns))
  }
  return noted
}

const NONE = sql<number>`0::float8`
const NOTHING: Expressions<Noted> = {
  rate: NONE,
  at: sql<number>`'Infinity'::float8`,
  before: NONE,
  passed: NONE,
}

/** What a limit without a row pays of a shared rate: what the others do not. */
function restOf(sharing: readonly number[], parameters: Parameters): Expressions<Noted> {
  const shares = sharing.filter((place) => place >= 0).map((place) => name(at(place, SHARE)))
  return { ...NOTHING, rate: sql<number>`${sql.join([parameters.number('rate'), ...shares], sql` - `)}` }
}

function paidBy({ row, place, own }: PlacedRow): Expressions<Noted> {
  const { algorithm } = row.rules
  const { sql: formulas, kind, settled } = algorithm
  const of: Column = (column) => name(at(place, column))
  const [state, now, params] = [stateOf(of), of('now'), paramsOf(algorithm, own)]
  const rate = row.pays ? of(SHARE) : amountOf(row, of, own)
  const next = () => formulas.consume(state, now, of('available'), rate, params, settled ? rate : NONE)
  return {
    rate,
    at: kind === 'window' ? state.windowStart : (formulas.wholeAt ?? formulas.expiresAt)(next(), params),
    before: formulas.before?.(state, params) ?? formulas.used(state, now, params),
    passed: isDryIn(row) ? sql<number>`case when ${of('fits')} then 0::float8 else 1::float8 end` : NONE,
  }
}

function isDryIn({ isDry, asks }: ListRow): boolean {
  return isDry && asks !== undefined
}
