import { and, type SQL, sql } from 'drizzle-orm'
import { MAX_COUNT } from '../limits/limiter.ts'
import { columnList, name } from './builder.ts'
import { SQL_NAMES, stateColumns } from './columns.ts'
import { givesBack, lateColumn, payingStart, slackOf } from './decided.ts'
import {
  CLOCK_MS,
  type ColumnByName,
  inStep,
  type Level,
  OTHER,
  paramsOf,
  type QueryLevel,
  type Step,
  stateOf,
  stepsFrom,
} from './levels.ts'
import { at, BEFORE, knownGranted, type PlacedRow } from './list-row.ts'

// The arithmetic of the rows of a list. The rows take each step in one level, because each level costs as much
// as several columns.

const CLOCK = 'clock'

/** The level that finds rows. All rows of a list have the same time, which is read after the last lock. */
export function foundRows(
  alias: string,
  columns: readonly string[],
  from: SQL,
  rows: readonly PlacedRow[],
): QueryLevel {
  const isTimed = rows.some(({ row }) => !row.injectedClock)
  const clock = sql`, ${CLOCK_MS} as ${name(CLOCK)}`
  return {
    query: sql`select ${columnList(columns)}${isTimed ? clock : sql``} from ${from}`,
    source: name(alias),
    columns: isTimed ? [...columns, CLOCK] : columns,
  }
}

export function advancedRows(rows: readonly PlacedRow[], found: Level): Level {
  if (rows.length === 0) return found
  const states = rows.map(statesOf)
  const dated = inStep(
    'dated',
    found,
    states.map((each) => each.dated),
  )
  const advanced = states.map((each) => each.advanced)
  return inStep('advanced', dated, [...advanced, { columns: {}, without: [CLOCK] }])
}

/** The levels that add how much each row has `available`, after its refund. */
export function offeredRows(rows: readonly PlacedRow[], advanced: Level): Level {
  if (rows.length === 0) return advanced
  let offered = advanced
  const refunds = rows.filter(({ row }) => row.refunds)
  if (refunds.length > 0) {
    offered = inStep('refunding', offered, refunds.map(refundingStep))
    offered = inStep('refunded', offered, refunds.map(refundedStep))
  }
  return inStep('offered', offered, rows.map(offeredStep))
}

function statesOf({ row, place, own }: PlacedRow): ReturnType<typeof stepsFrom> {
  const { rules, injectedClock, does } = row
  return stepsFrom(rules, own, {
    withEnded: true,
    paid: payingStart(does, own),
    clock: injectedClock ? own.number('clock') : name(CLOCK),
    named: (column) => at(place, column),
  })
}

/** The formulas of a row and what they need: its state and time, its parameters, and the name of a column. */
function formulasOf({ row, place, own }: PlacedRow) {
  const { algorithm } = row.rules
  const of: ColumnByName = (column) => name(at(place, column))
  const [state, now, params, formulas] = [stateOf(of), of('now'), paramsOf(algorithm, own), algorithm.sql]
  // A parameter must be in the text of the statement, so `used` is made where it is used.
  return { of, state, now, params, formulas, used: () => formulas.used(state, now, params) }
}

function offeredStep(placed: PlacedRow): Step {
  const { formulas, state, now, params } = formulasOf(placed)
  return stepOf(placed, { available: formulas.available(state, now, params) })
}

function refundingStep(placed: PlacedRow): Step {
  const { of, formulas, state, now, params, used } = formulasOf(placed)
  const { algorithm } = placed.row.rules
  const before = stateColumns(algorithm).map((column) => [BEFORE + column, of(column)] as const)
  return stepOf(placed, {
    refunded: givesBack(algorithm, used(), placed.own, of),
    available: formulas.available(state, now, params),
    ...Object.fromEntries(before),
  })
}

function refundedStep(placed: PlacedRow): Step {
  const { of, formulas, state, now, params } = formulasOf(placed)
  const [amount, none] = [placed.own.number('refund'), sql<number>`0::float8`]
  const next = formulas.consume(state, now, of('available'), amount, params, none)
  const states = placed.row.rules.algorithm.columns.map((each) => {
    const column = SQL_NAMES[each]
    return [column, sql`case when ${of('refunded')} then ${next[each]} else ${of(column)} end`] as const
  })
  return stepOf(placed, Object.fromEntries(states))
}

function stepOf({ place }: PlacedRow, columns: Readonly<Record<string, SQL>>): Step {
  const all = Object.entries(columns).map(([column, value]) => [at(place, column), value])
  return { columns: Object.fromEntries(all), without: [] }
}

interface RowVerdict {
  readonly lets: SQL
  /** `fits`: whether it has enough; `granted`: whether it is written if the list is done. */
  readonly columns: Readonly<Record<string, SQL>>
}

export function verdictOn(placed: PlacedRow): RowVerdict {
  const { row, own: parameters } = placed
  const { rules, does, asks, isDry } = row
  const { algorithm } = rules
  const { of, formulas, state, now, params, used } = formulasOf(placed)
  const fits = asks ? sql`${of('available')}${slackOf(algorithm)} >= ${parameters.number(asks)}` : sql`true`
  const granted: SQL[] = []
  if (does === 'adjust') {
    const isUsed = givesBack(algorithm, used(), parameters, of)
    granted.push(sql`${parameters.number('rate')} > 0::float8 or ${isUsed}`)
  }
  if (isDry && asks) granted.push(sql`${fits} or ${parameters.number('forced')} > 0::float8`)
  if (isDry && asks && row.refunds) granted.push(sql`${of('refunded')}`)
  const conditions = [
    ...(isDry || !asks ? [] : [fits]),
    ...(does === 'adjust' || does === 'add' ? [isCountable()] : []),
    ...(rules.refusesOther ? [sql`not ${of(OTHER)}`] : []),
    ...(row.inTime ? [sql`${of('window_start')} = ${parameters.number('paidWindowStart')}`] : []),
    ...(algorithm.applies ? [algorithm.applies(now, params)] : []),
  ]
  const { columns } = stepOf(placed, {
    ...(isDry && asks ? { fits } : {}),
    ...(knownGranted(row) === undefined
      ? { granted: sql`case when ${sql.join(granted, sql` or `)} then 1::float8 else 0::float8 end` }
      : {}),
    ...(does === 'adjust' ? lateColumn(algorithm, state, params, parameters) : {}),
  })
  return { lets: and(...conditions) ?? sql`true`, columns }

  /** A charge is refused, and nothing is added, if its count would be too large to be exact. */
  function isCountable(): SQL {
    const counted = does === 'add' ? (formulas.capacity?.(state, params) ?? used()) : used()
    const [rate, most] = [parameters.number('rate'), sql.raw(`${MAX_COUNT}::float8`)]
    const amount =
      isDry && asks ? sql`case when ${fits} then ${rate} else ${parameters.number('forced')} end` : rate
    return sql`(${rate} <= 0::float8 or ${counted} + ${amount} <= ${most})`
  }
}
