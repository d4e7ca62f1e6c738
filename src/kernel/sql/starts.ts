import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Expressions, StartFormulas, StateColumn } from '../limits/algorithm.ts'
import { name, type Parameters } from './builder.ts'
import type { Sent } from './calls.ts'
import { MAX_TIME, SQL_NAMES } from './columns.ts'
import { type ColumnByName, type Level, level, paramsOf, stateOf } from './levels.ts'

// Calls that are given start times.

const ZERO = sql<number>`0::float8`
const ENDLESS = sql.raw("'Infinity'::float8") as SQL<number>
/** Two amounts divide each other evenly if the quotient is this close to a whole number. */
const EVEN = sql.raw('1e-9::float8')

/** How many of the equal calls can start now. */
const BEGUN = 'begun'
/** When the first of the calls that have to wait can start. */
const FIRST = 'first'
/** What the bucket would have then without its limit, less what the calls take that start now. */
const REACHED = 'reached'

/**
 * How many equal calls can be promised a start. Each start takes its rate out of the bucket before the next
 * refill, so the size of the bucket limits what it has at each start, and not the sum of the rates.
 *
 * If what comes in addition to the size is lost before a start, the next starts depend on it. Then only those
 * that start now or at the next time are granted, and the others have to ask again.
 */
export function startingLater(
  algorithm: AnyAlgorithm,
  offered: Level,
  sent: Sent,
  parameters: Parameters,
): { readonly below: Level; readonly granted: SQL } {
  const { available, consume } = algorithm.sql
  const formulas = startsOf(algorithm)
  const [state, now, params] = [stateOf(), name('now'), paramsOf(algorithm, parameters)]
  const endless = paramsOf(algorithm, parameters, ENDLESS)
  const [rate, slack, limit] = [sent('rate'), sql.raw(`${algorithm.tolerance}::float8`), params['limit']]
  const idle = consume(state, now, name('available'), ZERO, params, ZERO)
  const columns = algorithm.columns.map((column) => [SQL_NAMES[column], idle[column]] as const)
  const standing = level('standing', offered, {
    ...Object.fromEntries(columns),
    [BEGUN]: sql`greatest(floor((${name('available')} + ${slack}) / ${rate}), 0::float8)`,
  })
  const begun = name(BEGUN)
  const waiting = level('waiting', standing, {
    [FIRST]: formulas.whenAvailable(state, sql`(${begun} + 1::float8) * ${rate}`, params),
  })
  const reached = level('reached', waiting, {
    [REACHED]: sql`${available(state, name(FIRST), endless)} - ${begun} * ${rate}`,
  })
  const latest = sql<number>`${now} + ${sent('within')}`
  const atFirst = sql`floor((least(${name(REACHED)}, ${limit}) + ${slack}) / ${rate})`
  const soon = sql`${begun} + case when ${name(FIRST)} <= ${latest} then ${atFirst} else 0::float8 end`
  const all = sql`floor((${available(state, latest, endless)} + ${slack}) / ${rate})`
  const most = mostBefore(rate, formulas.refill(params))
  return {
    below: reached,
    granted: sql`case when ${rate} > ${limit} + ${slack} then 0::float8
      when ${most} <= ${limit} + ${slack} then ${all} else ${soon} end`,
  }
}

/** The most that a bucket without a limit has before the start of a call that has to wait. */
function mostBefore(rate: SQL, refill: SQL): SQL {
  const [larger, smaller] = [sql`greatest(${rate}, ${refill})`, sql`least(${rate}, ${refill})`]
  const quotient = sql`${larger} / ${smaller}`
  const rest = sql`${name('available')} - floor(${name('available')} / ${rate}) * ${rate}`
  return sql`case when abs(${quotient} - round(${quotient})) > ${EVEN} then ${rate} + ${refill}
    when ${rate} < ${refill} then ${refill} + ${rest} else ${name(REACHED)} end`
}

/**
 * How much of the negative rate of a cancel no later call counts on. If less than nothing is available at the
 * start of the cancelled call, later calls were promised the units that come until they start. What the last of
 * them leaves would be lost in a bucket that was full before, so it is not given back either.
 */
export function unpromised(algorithm: AnyAlgorithm, sent: Sent, params: Expressions<string>): SQL<number> {
  const { available } = algorithm.sql
  const state = stateOf()
  const then = available(state, sent('refundableUntil'), params)
  const left = available(state, startsOf(algorithm).whenAvailable(state, ZERO, params), params)
  return sql`case when ${then} < 0::float8 then ${then} - greatest(${left}, 0::float8) else 0::float8 end - ${sent('rate')}`
}

/** The state after calls were given starts, or after one was cancelled. */
export function stateWithStarts(
  algorithm: AnyAlgorithm,
  action: 'schedule' | 'cancel',
  amount: SQL<number>,
  of: ColumnByName,
  params: Expressions<string>,
): Expressions<StateColumn> {
  const { consume } = algorithm.sql
  const formulas = startsOf(algorithm)
  const [state, now, available] = [stateOf(of), of('now'), of('available')]
  if (action === 'cancel') {
    const idle = consume(state, now, available, ZERO, params, ZERO)
    return { ...idle, tokens: sql`least(${idle.tokens} + ${of('unpromised')}, ${params['limit']})` }
  }
  const spilt = sql`case when ${of('granted')} > ${of(BEGUN)}
    then greatest(${of(REACHED)} - ${params['limit']}, 0::float8) else 0::float8 end`
  const next = consume(state, now, available, sql`(${amount} + ${spilt})`, params, ZERO)
  // Calls that start now promise nothing.
  const last = sql`least(${formulas.whenAvailable(state, amount, params)}, ${MAX_TIME})`
  const promised = sql`case when ${of('granted')} > ${of(BEGUN)} then ${last} end`
  return { ...next, prevCount: sql`greatest(${next.prevCount}, ${promised})` }
}

function startsOf({ sql: { starts } }: AnyAlgorithm): StartFormulas<StateColumn, string> {
  if (!starts) throw new TypeError('The algorithm gives no start times.')
  return starts
}
