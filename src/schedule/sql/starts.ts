import { type SQL, sql } from 'drizzle-orm'
import type {
  AnyAlgorithm,
  Expressions,
  Limiter,
  StartFormulas,
  StateColumn,
} from '../../kernel/limits/algorithm.ts'
import { type Snapshot, whenAvailable } from '../../kernel/limits/search.ts'
import { name } from '../../kernel/sql/builder.ts'
import { MAX_TIME, SQL_NAMES } from '../../kernel/sql/columns.ts'
import type { Deciding, OwnAction, Taking } from '../../kernel/sql/decided.ts'
import { level, paramsOf, stateOf } from '../../kernel/sql/levels.ts'

// Calls that are given start times.

/** Charges calls that begin later. */
export const SCHEDULE: OwnAction = {
  name: 'schedule',
  sends: ['within'],
  isAlone: false,
  decide: startingLater,
  next: afterStarts,
  after: startedLater,
}

/** Gives back what was not promised to later calls, and so changes what the next cancel gives back. */
export const CANCEL: OwnAction = {
  name: 'cancel',
  sends: ['refundableUntil'],
  isAlone: true,
  decide: cancelling,
  next: afterCancel,
  after: cancelled,
}

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
/** What a cancel can give back, as a negative rate asks for it. */
const UNPROMISED = 'unpromised'

/**
 * How many equal calls can be promised a start. Each start takes its rate out of the bucket before the next
 * refill, so the size of the bucket limits what it has at each start, and not the sum of the rates.
 *
 * If what comes in addition to the size is lost before a start, the next starts depend on it. Then only those
 * that start now or at the next time are granted, and the others have to ask again.
 */
function startingLater({ algorithm, offered, parameters }: Deciding): ReturnType<OwnAction['decide']> {
  const { available, consume } = algorithm.sql
  const formulas = startsOf(algorithm)
  const [state, now, params] = [stateOf(), name('now'), paramsOf(algorithm, parameters)]
  const endless = paramsOf(algorithm, parameters, ENDLESS)
  const [rate, slack, limit] = [
    parameters.number('rate'),
    sql.raw(`${algorithm.tolerance}::float8`),
    params['limit'],
  ]
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
  const latest = sql<number>`${now} + ${parameters.number('within')}`
  const atFirst = sql`floor((least(${name(REACHED)}, ${limit}) + ${slack}) / ${rate})`
  const soon = sql`${begun} + case when ${name(FIRST)} <= ${latest} then ${atFirst} else 0::float8 end`
  const all = sql`floor((${available(state, latest, endless)} + ${slack}) / ${rate})`
  const most = mostBefore(rate, formulas.refill(params))
  const granted = sql`case when ${rate} > ${limit} + ${slack} then 0::float8
      when ${most} <= ${limit} + ${slack} then ${all} else ${soon} end`
  return { below: reached, granted: sql`least(${granted}, ${parameters.number('calls')})` }
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
 * Whether something is given back: what no later call counts on. If less than nothing is available at the start
 * of the cancelled call, later calls were promised the units that come until they start. What the last of them
 * leaves would be lost in a bucket that was full before, so it is not given back either.
 */
function cancelling({ algorithm, offered, parameters }: Deciding): ReturnType<OwnAction['decide']> {
  const { available, used } = algorithm.sql
  const [state, now, params] = [stateOf(), name('now'), paramsOf(algorithm, parameters)]
  const then = available(state, parameters.number('refundableUntil'), params)
  const left = available(state, startsOf(algorithm).whenAvailable(state, ZERO, params), params)
  const unpromised = sql`case when ${then} < 0::float8 then ${then} - greatest(${left}, 0::float8) else 0::float8 end - ${parameters.number('rate')}`
  // A row that is made for the cancel has lost the start, and gives back nothing.
  const isThere = offered.columns.includes('holds') ? sql`${name('holds')} is true and ` : sql``
  const isLeft = sql`${isThere}${now} < ${parameters.number('refundableUntil')} and ${name(UNPROMISED)} > ${sql.raw(String(algorithm.tolerance))}::float8`
  return {
    below: level('promised', offered, { [UNPROMISED]: unpromised }),
    granted: sql`case when ${isLeft} and ${used(state, now, params)} > 0::float8 then ${parameters.number('calls')} else 0::float8 end`,
  }
}

function afterCancel({ algorithm, of, params }: Taking): Expressions<StateColumn> {
  const idle = algorithm.sql.consume(stateOf(of), of('now'), of('available'), ZERO, params, ZERO)
  return {
    ...idle,
    tokens: sql`least(${idle.tokens} + ${of('granted')} * ${of(UNPROMISED)}, ${params['limit']})`,
  }
}

function afterStarts({ algorithm, amount, of, params }: Taking): Expressions<StateColumn> {
  const { consume } = algorithm.sql
  const { whenAvailable } = startsOf(algorithm)
  const [state, now, available] = [stateOf(of), of('now'), of('available')]
  const spilt = sql`case when ${of('granted')} > ${of(BEGUN)}
    then greatest(${of(REACHED)} - ${params['limit']}, 0::float8) else 0::float8 end`
  const next = consume(state, now, available, sql`(${amount} + ${spilt})`, params, ZERO)
  // Calls that start now promise nothing.
  const last = sql`least(${whenAvailable(state, amount, params)}, ${MAX_TIME})`
  const promised = sql`case when ${of('granted')} > ${of(BEGUN)} then ${last} end`
  return { ...next, prevCount: sql`greatest(${next.prevCount}, ${promised})` }
}

// The same in TypeScript.

function startedLater(
  ...[limiter, snapshot, { rate }, calls]: Parameters<OwnAction['after']>
): ReturnType<OwnAction['after']> {
  const { state, now, params } = snapshot
  const amount = calls * rate + spilt(limiter, snapshot, rate, calls)
  return limiter.algorithm.numbers.consume(state, now, amount, params, 0)
}

/** What a bucket loses before the first start that has to wait, because more comes than its size. */
function spilt(limiter: Limiter, snapshot: Snapshot, rate: number, calls: number): number {
  const { numbers, tolerance } = limiter.algorithm
  const { state, now, params } = snapshot
  const endless = { ...params, limit: Number.POSITIVE_INFINITY }
  const begun = Math.max(Math.floor((numbers.available(state, now, params) + tolerance) / rate), 0)
  if (calls <= begun) return 0
  const first = whenAvailable(limiter, { ...snapshot, params: endless }, (begun + 1) * rate)
  return Math.max(numbers.available(state, first, endless) - begun * rate - params.limit, 0)
}

function cancelled(
  ...[limiter, snapshot, { rate, refundableUntil }]: Parameters<OwnAction['after']>
): ReturnType<OwnAction['after']> {
  const { numbers } = limiter.algorithm
  const { state, now, params } = snapshot
  const availableAt = (time: number) => numbers.available(state, time, params)
  const then = Math.min(availableAt(refundableUntil ?? now), 0)
  const left = then < 0 ? Math.max(availableAt(whenAvailable(limiter, snapshot, 0)), 0) : 0
  const idle = numbers.consume(state, now, 0, params, 0)
  return { ...idle, tokens: Math.min(idle.tokens + then - left - rate, params.limit) }
}

function startsOf({ sql: { starts } }: AnyAlgorithm): StartFormulas<StateColumn, string> {
  if (!starts) throw new TypeError('The algorithm gives no start times.')
  return starts
}
