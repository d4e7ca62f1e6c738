import { sql } from 'drizzle-orm'
import type { Expressions, Noted } from '../limits/algorithm.ts'
import { name, type Parameters } from './builder.ts'
import { type ColumnByName, level, paramsOf, type QueryLevel, stateOf } from './levels.ts'
import { at, type ListRow, type PlacedRow, takenAmount } from './list-row.ts'
import { PAID_COLUMNS } from './note.ts'
import { type Payers, rateOf, SHARE } from './shares.ts'

/**
 * The levels that add what rows note, if one of them does.
 *
 * @param groups The groups of rows that pay a rate together.
 */
export function withNotes(
  rows: readonly PlacedRow[],
  groups: readonly Payers[],
  decided: QueryLevel,
  parameters: Parameters,
): QueryLevel {
  let noted = decided
  for (const { row, place } of rows) {
    if (row.notes === undefined) continue
    const paid = together(row.notes.map(paidAt))
    const columns = Object.entries(PAID_COLUMNS).map(([each, column]) => [
      at(place, column),
      paid[each as Noted],
    ])
    noted = level('noted', noted, Object.fromEntries(columns))
  }
  return noted

  function paidAt(place: number): Expressions<Noted> {
    const payer = rows.find((other) => other.place === place)
    // A limit without a row pays what the others of its group do not.
    const group = groups.findIndex((payers) => payers.includes(-1))
    return payer ? paidBy(payer) : group < 0 ? PAID_NOTHING : leftBy(groups, group, parameters)
  }
}

/** What is noted of several rows is the sum that they have paid. */
function together(paid: readonly Expressions<Noted>[]): Expressions<Noted> {
  const [only = PAID_NOTHING, ...more] = paid
  if (more.length === 0) return only
  return {
    ...PAID_NOTHING,
    rate: sql<number>`${sql.join(
      paid.map(({ rate }) => rate),
      sql` + `,
    )}`,
  }
}

const ZERO = sql<number>`0::float8`
const PAID_NOTHING: Expressions<Noted> = {
  rate: ZERO,
  at: sql<number>`'Infinity'::float8`,
  before: ZERO,
  dryRun: ZERO,
}

/** What the rows of a group do not pay of its rate. */
function leftBy(groups: readonly Payers[], group: number, parameters: Parameters): Expressions<Noted> {
  const payers = groups[group]?.filter((place) => place >= 0) ?? []
  const shares = payers.map((place) => name(at(place, SHARE)))
  return {
    ...PAID_NOTHING,
    rate: sql<number>`${sql.join([parameters.number(rateOf(group)), ...shares], sql` - `)}`,
  }
}

function paidBy({ row, place, own }: PlacedRow): Expressions<Noted> {
  const { algorithm } = row.rules
  const { sql: formulas, kind, settled } = algorithm
  const of: ColumnByName = (column) => name(at(place, column))
  const [state, now, params] = [stateOf(of), of('now'), paramsOf(algorithm, own)]
  const rate = row.pays ? of(SHARE) : takenAmount(row, of, own)
  const next = () => formulas.consume(state, now, of('available'), rate, params, settled ? rate : ZERO)
  return {
    rate,
    at: kind === 'window' ? state.windowStart : (formulas.wholeAt ?? formulas.expiresAt)(next(), params),
    before: formulas.before?.(state, params) ?? formulas.used(state, now, params),
    dryRun: isDryIn(row) ? sql<number>`case when ${of('fits')} then 0::float8 else 1::float8 end` : ZERO,
  }
}

function isDryIn({ isDry, asks }: ListRow): boolean {
  return isDry && asks !== undefined
}
