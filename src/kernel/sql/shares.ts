import { type SQL, sql } from 'drizzle-orm'
import type { Expressions, Noted } from '../limits/algorithm.ts'
import { name, type Parameters } from './builder.ts'
import { type ColumnByName, type Level, level, paramsOf, type QueryLevel, stateOf } from './levels.ts'
import { at, type ListRow, NOTED, PAID_COLUMNS, type PlacedRow, takenAmount } from './list-row.ts'

/**
 * The places of the rows that pay one rate together, in the order in which they pay. Place -1 is a limit
 * without a row, and pays all the rest.
 */
export type Payers = readonly number[]

/**
 * A number of a group: its `rate`, the part of it that need not be paid, `spare`, and the `rest` that none of
 * its rows can pay; or whether those that pay for the last debt have more, and something is left to pay.
 */
export function ofGroup(group: number, what: 'rate' | 'spare' | 'rest' | 'ispaid'): string {
  return `group${group}.${what}`
}

export const SHARE = 'share'

const ZERO = sql<number>`0::float8`

/**
 * The levels that add the share of each row in the rate of its group, and the rest that none can pay. The first
 * row pays as much as it has, the next one pays from the rest, and so on. `sharesOf` does the same on numbers.
 */
export function sharesOfRows(
  rows: readonly ListRow[],
  payers: Payers,
  group: number,
  decided: Level,
  parameters: Parameters,
): QueryLevel {
  const REST = ofGroup(group, 'rest')
  // If one gave a fraction, limits that count whole units could not pay the rest.
  const isWhole = payers.some((place) => rows[place]?.rules.algorithm.integersOnly)
  let shared = level('shared', decided, { [REST]: parameters.number(ofGroup(group, 'rate')) })
  for (const place of payers) shared = paidBy(place, shared)
  const debtor = payers.slice(0, -1).find((place) => rows[place]?.pays === 'rest as debt')
  if (debtor === undefined) return shared
  const all = sql`${name(at(debtor, SHARE))} + ${name(REST)}`
  return level('shared', shared, { [at(debtor, SHARE)]: all, [REST]: ZERO })

  function paidBy(place: number, below: QueryLevel): QueryLevel {
    const row = rows[place]
    if (!row) return level('shared', below, { [REST]: ZERO })
    if (row.pays === 'rest as debt' && place === payers.at(-1))
      return level('shared', below, { [at(place, SHARE)]: name(REST), [REST]: ZERO })
    return row.pays === 'debt' ? owed(place, below) : had(row, place, below)
  }

  /** The row pays what it owes, so that the rows that pay for it pay more. */
  function owed(place: number, below: Level): QueryLevel {
    const isPaid = ofGroup(group, 'ispaid')
    const available = name(at(place, 'available'))
    const left = sql.join([available, ...payingFor(place)], sql` + `)
    const owes = level('owes', below, { [isPaid]: sql`${name(REST)} > ${ZERO} and ${left} > ${ZERO}` })
    const share = sql`case when ${name(isPaid)} then least(${available}, ${ZERO}) else ${ZERO} end`
    return level('shared', owes, { [at(place, SHARE)]: share, [REST]: sql`${name(REST)} - ${share}` })
  }

  /** What the rows have that pay for the debt at the place. */
  function payingFor(debt: number): SQL[] {
    const after = payers.slice(payers.indexOf(debt) + 1)
    const end = after.findIndex((place) => rows[place]?.pays !== 'available after debt')
    const paying = end < 0 ? after : after.slice(0, end)
    return paying.map((place) => sql`greatest(${name(at(place, 'available'))}, ${ZERO})`)
  }

  /** The row pays what it has, or the rest if that is less. */
  function had({ rules, pays }: ListRow, place: number, below: Level): QueryLevel {
    const available = name(at(place, 'available'))
    const own = sql`${available} + ${sql.raw(String(rules.algorithm.tolerance))}::float8`
    const most =
      pays === 'available after debt'
        ? sql`case when ${name(ofGroup(group, 'ispaid'))} then ${own} else ${ZERO} end`
        : own
    const left = isWhole ? sql`greatest(floor(${most}), ${ZERO})` : sql`greatest(${available}, ${ZERO})`
    const isEnough = sql`${name(REST)} <= ${most}`
    const given = level('given', below, {
      [at(place, SHARE)]: sql`case when ${isEnough} then ${name(REST)} else ${left} end`,
    })
    // If there was enough, nothing is left, even if a subtraction would leave a fraction.
    const rest = sql`case when ${isEnough} then ${ZERO} else ${name(REST)} - ${name(at(place, SHARE))} end`
    return level('shared', given, { [REST]: rest })
  }
}

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
    const columns = NOTED.map((each) => [at(place, PAID_COLUMNS[each]), paid[each]])
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
    rate: sql<number>`${sql.join([parameters.number(ofGroup(group, 'rate')), ...shares], sql` - `)}`,
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
    dryRun:
      row.isDry && row.asks ? sql<number>`case when ${of('fits')} then 0::float8 else 1::float8 end` : ZERO,
  }
}
