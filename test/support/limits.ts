import fc from 'fast-check'
import { DateTime } from 'luxon'
import { calendarWindow } from '../../src/calendar/calendar-window.ts'
import { type Duration, type Limiter, Ratelimit } from '../../src/index.ts'
import type { StoredLimiter } from '../../src/kernel/limits/algorithm.ts'
import { lockout } from '../../src/lockout/limit.ts'
import { firstFrom, MOST, type ModelPlan, type Rules, type State } from './model.ts'
import { stored } from './stored.ts'

// The one table of what tests know about the algorithms. A new algorithm is one row in it.

type Constructors = typeof Ratelimit & {
  readonly calendarWindow: typeof calendarWindow
  readonly lockout: typeof lockout
}

/** What makes a limiter in the package. */
export type AlgorithmName = {
  [Name in keyof Constructors]: Constructors[Name] extends (...args: never[]) => Limiter ? Name : never
}[keyof Constructors]

/** A limit with numbers. */
export interface Plan extends ModelPlan {
  readonly algorithm: AlgorithmName
  /** The numbers, so that a failure can be read. */
  readonly name: string
  readonly limiter: StoredLimiter
  /** The time between two refills, or the length of a window. */
  readonly stepMs: number
  /** The same limit, full for a new key. */
  readonly startingFull: Plan
  readonly [fc.toStringMethod]: () => string
}

interface CountingRow {
  readonly counts: true
  /** What a key keeps when its limit changes to another size. */
  readonly keeps: 'what is left' | 'what was used'
  /** How a debt ends: refills pay it back, or its window forgets it. */
  readonly debtsEnd: 'by refills' | 'with the window'
  /** Whether a threshold is crossed once in a period, even if something is given back and used again. */
  readonly crossesOncePerPeriod: boolean
  /** The `start` that a look at a new key gives at this time; buckets give none. */
  readonly windowStart: (now: number) => { readonly start?: number }
  /** Whether half a token can be taken. */
  readonly takesFractions: boolean
  /** Whether a limit of 0 is valid. It blocks. */
  readonly mayBeEmpty: boolean
  /** Whether its periods can have any length. */
  readonly lengths: 'any' | 'of the calendar'
  /**
   * Fixed examples, by name. Of `tokens`, one comes back with each `unit`, or all come back after ten of them.
   * In a calendar all come back with the month.
   */
  readonly examples: Readonly<Record<string, (tokens: number, unit: Duration) => Plan>>
  /** Any limit. */
  readonly anyPlan: fc.Arbitrary<Plan>
  /** Limits so much like this one that they read what it has written. */
  readonly similar: (plan: Plan) => fc.Arbitrary<Plan>
  /** A limiter of the shared vectors. */
  readonly fromVector: (limiter: VectorLimiter) => Plan
}

/** It counts nothing, so there is nothing to keep, to owe or to model. */
interface UncountedRow {
  readonly counts: false
  readonly keeps: 'nothing'
  readonly limiter: Limiter
}

export interface VectorLimiter {
  readonly type: string
  readonly tokens?: number
  readonly window?: number
  readonly refill?: string
  readonly refillRate?: number
  readonly interval?: number
  readonly maxTokens?: number
}

const EPSILON = 1e-9
const MAX_PERIOD_MS = 50 * 365 * 86_400_000
const state = (own: Partial<State> & Pick<State, 'at'>): State => ({
  tokens: 0,
  count: 0,
  previous: 0,
  ...own,
})

interface BucketNumbers {
  readonly refill: 'interval' | 'continuous'
  readonly refillRate: number
  readonly interval: Duration
  readonly maxTokens: number
  readonly initialTokens: number
}

function bucketPlan(own: BucketNumbers): Plan {
  const { refill, refillRate, interval, maxTokens, initialTokens } = own
  const limiter = stored(Ratelimit.tokenBucket(refillRate, interval, maxTokens, { refill, initialTokens }))
  const stepMs = msOf(interval)
  const rules: Rules = {
    capacity: maxTokens,
    periodMs:
      refill === 'interval'
        ? firstFrom(0, (intervals) => intervals * refillRate + EPSILON >= maxTokens) * stepMs
        : firstFrom(0, (ms) => (ms * refillRate) / stepMs + EPSILON >= maxTokens),
    fresh: (at) => state({ at, tokens: initialTokens }),
    forward: (before, t) => {
      const passed = (t - before.at) / stepMs
      const intervals = refill === 'interval' ? Math.floor(passed) : passed
      return {
        ...before,
        at: refill === 'interval' ? before.at + intervals * stepMs : t,
        tokens: Math.min(before.tokens + intervals * refillRate, maxTokens),
      }
    },
    fits: ({ tokens }, _t, rate) => rate <= tokens + EPSILON,
    take: (before, rate) => ({ ...before, tokens: Math.min(before.tokens - rate, maxTokens) }),
    used: ({ tokens }) => maxTokens - tokens,
    left: ({ tokens }) => tokens,
  }
  return planWith('tokenBucket', own, { limiter, rules, stepMs }, () =>
    bucketPlan({ ...own, initialTokens: maxTokens }),
  )
}

interface GcraNumbers {
  readonly limit: number
  readonly period: Duration
  readonly burst: number
}

function gcraPlan(own: GcraNumbers): Plan {
  const { limit, period, burst } = own
  const unitMs = msOf(period) / limit
  const rules: Rules = {
    capacity: burst,
    periodMs: firstFrom(0, (ms) => ms / unitMs + EPSILON >= burst),
    fresh: (at) => state({ at, tokens: burst }),
    forward: (before, t) => ({
      ...before,
      at: t,
      tokens: Math.min(before.tokens + (t - before.at) / unitMs, burst),
    }),
    fits: ({ tokens }, _t, rate) => rate <= tokens + EPSILON,
    take: (before, rate) => ({ ...before, tokens: Math.min(before.tokens - rate, burst) }),
    used: ({ tokens }) => burst - tokens,
    left: ({ tokens }) => tokens,
  }
  const limiter = stored(Ratelimit.gcra(limit, period, { burst }))
  return planWith('gcra', own, { limiter, rules, stepMs: Math.ceil(unitMs) })
}

interface WindowNumbers {
  readonly tokens: number
  readonly window: Duration
}

function fixedWindowPlan(own: WindowNumbers): Plan {
  const { tokens, window } = own
  const stepMs = msOf(window)
  const rules: Rules = {
    capacity: tokens,
    periodMs: stepMs,
    fresh: (at) => state({ at }),
    forward: (before, t) => (t < before.at + stepMs ? before : state({ at: t })),
    endOf: ({ at }) => at + stepMs,
    ...counting(tokens),
  }
  return planWith('fixedWindow', own, {
    limiter: stored(Ratelimit.fixedWindow(tokens, window)),
    rules,
    stepMs,
  })
}

function slidingWindowPlan(own: WindowNumbers): Plan {
  const { tokens, window } = own
  const stepMs = msOf(window)
  const rules: Rules = {
    capacity: tokens,
    periodMs: stepMs,
    fresh: (at) => state({ at }),
    forward: (before, t) => {
      if (t < before.at + stepMs) return before
      if (t >= before.at + 2 * stepMs) return state({ at: t })
      return { ...before, at: before.at + stepMs, count: 0, previous: before.count }
    },
    startOf: ({ at }) => at,
    // In requests times milliseconds. These are whole numbers, and BigInt keeps them exact.
    fits: ({ at, count, previous }, t, rate) => {
      const most = Math.min(tokens, MOST)
      const current = (BigInt(Math.min(count, most)) + BigInt(rate)) * BigInt(stepMs)
      const faded = BigInt(Math.min(previous, most)) * BigInt(at + stepMs - t)
      return current + faded <= BigInt(most) * BigInt(stepMs)
    },
    take: (before, rate) => {
      if (before.count + rate >= 0) return { ...before, count: before.count + rate }
      // More is given back than this window took: the rest comes out of the previous one.
      const rest = -rate - before.count
      return { ...before, count: 0, previous: Math.max(before.previous - rest, 0) }
    },
    used: ({ at, count, previous }, t) => {
      const faded = BigInt(previous) * BigInt(at + stepMs - t)
      return count + Number((faded + BigInt(stepMs) - 1n) / BigInt(stepMs))
    },
  }
  return planWith('slidingWindow', own, {
    limiter: stored(Ratelimit.slidingWindow(tokens, window)),
    rules,
    stepMs,
  })
}

interface LockoutNumbers extends WindowNumbers {
  readonly block: number
  readonly factor: number
  readonly max: number
  readonly forgive: number
}

/** `tokens` of a state is the end of the last block, and `previous` its length. */
function lockoutPlan(own: LockoutNumbers): Plan {
  const { tokens, window, block, factor, max, forgive } = own
  const most = Math.min(tokens, MOST)
  const stepMs = msOf(window)
  const hasBlock = ({ at, tokens: until }: State) => until > at
  const endOf = (each: State) => (hasBlock(each) ? each.tokens : each.at + stepMs)
  const rules: Rules = {
    ...counting(tokens),
    capacity: tokens,
    periodMs: stepMs,
    fresh: (at) => state({ at, tokens: at }),
    forward: (before, t) => {
      const previous = t < before.tokens + forgive ? Math.min(before.previous, max) : 0
      return t < endOf(before) ? { ...before, previous } : { ...before, previous, at: t, count: 0 }
    },
    take: (before, rate, t) => {
      const count = Math.min(Math.max(before.count + rate, 0), MOST)
      if (rate > 0 && count >= most) {
        const previous = Math.min(Math.max(Math.ceil(before.previous * factor), block), max)
        return { ...before, count, previous, tokens: t + previous }
      }
      if (before.count < most || count >= most) return { ...before, count }
      const previous = before.previous <= block ? 0 : Math.floor(before.previous / factor)
      // Without the block the window may be over.
      if (t >= before.at + stepMs) return { ...before, count: 0, previous, at: t, tokens: t }
      return { ...before, count, previous, tokens: before.at }
    },
    isTooLong: ({ tokens: until }, clockMs) => until - clockMs > 2 * max,
    blockedUntil: (each) => (hasBlock(each) && each.count >= most ? each.tokens : undefined),
  }
  const limiter = stored(lockout(tokens, window, { block, factor, max, forgive }))
  return planWith('lockout', own, { limiter, rules, stepMs })
}

interface CalendarNumbers {
  readonly tokens: number
  readonly period: keyof typeof MAX_HOURS
  readonly timeZone: string
  /** Days or longer. Default: 1. */
  readonly every?: number
}

/** The longest of each, with the hour of a clock change. */
const MAX_HOURS = { minute: 1 / 60, hour: 1, day: 25, week: 169, month: 745, year: 8785 } as const

/** The days or longer periods that have passed in local time. Weeks begin on Monday, 1970 on a Thursday. */
function unitsSince1970({ year, month, day }: DateTime, period: CalendarNumbers['period']): number {
  const days = Date.UTC(year, month - 1, day) / 86_400_000
  if (period === 'year') return year - 1970
  if (period === 'month') return (year - 1970) * 12 + month - 1
  return period === 'week' ? Math.floor((days - 4) / 7) : days
}

function calendarWindowPlan(own: CalendarNumbers): Plan {
  const { tokens, period, timeZone: zone, every = 1 } = own
  let last = { start: 0, end: 0 }
  const periodOf = (t: number) => {
    if (t < last.start || t >= last.end) {
      const latest = DateTime.fromMillis(t, { zone }).startOf(period)
      const start = latest.minus({ [period]: every === 1 ? 0 : unitsSince1970(latest, period) % every })
      last = { start: start.toMillis(), end: start.plus({ [period]: every }).toMillis() }
    }
    return last
  }
  const startOf = (t: number) => periodOf(t).start
  const stepMs = MAX_HOURS[period] * 3_600_000 * every
  // Full quarters of the last hour are the start of the next period in another version of the time zone data.
  const isSame = (at: number, next: number) =>
    MAX_HOURS[period] > 1 && [1, 2, 3, 4].some((quarters) => at + quarters * 900_000 === next)
  const rules: Rules = {
    capacity: tokens,
    periodMs: stepMs,
    fresh: (at) => state({ at: startOf(at) }),
    // A count that began in the present period was used in it, even if its own plan had another period.
    forward: (before, t) =>
      before.at >= startOf(t) || isSame(before.at, startOf(t)) ? before : state({ at: startOf(t) }),
    endOf: ({ at }) => {
      const { end } = periodOf(at)
      return isSame(at, end) ? periodOf(end).end : end
    },
    reserves: true,
    ...counting(tokens),
  }
  const limiter = stored(calendarWindow(tokens, period, { timeZone: zone, every }))
  return planWith('calendarWindow', own, { limiter, rules, stepMs })
}

/** A window that counts what was taken from it. */
function counting(tokens: number): Pick<Rules, 'fits' | 'take' | 'used' | 'startOf'> {
  const most = Math.min(tokens, MOST)
  return {
    startOf: ({ at }) => at,
    fits: ({ count }, _t, rate) => Math.min(count, most) + rate <= most,
    take: (before, rate) => ({ ...before, count: Math.max(before.count + rate, 0) }),
    used: ({ count }) => count,
  }
}

function planWith(
  algorithm: AlgorithmName,
  numbers: object,
  made: Pick<Plan, 'limiter' | 'rules' | 'stepMs'>,
  startingFull?: () => Plan,
): Plan {
  const name = `${algorithm} ${JSON.stringify(numbers)}`
  return {
    ...{ algorithm, name, ...made, [fc.toStringMethod]: () => name },
    get startingFull() {
      return startingFull?.() ?? this
    },
  }
}

function msOf(duration: Duration): number {
  return Ratelimit.fixedWindow(1, duration).params.periodMs
}

function tenOf(unit: Duration): number {
  return 10 * msOf(unit)
}

const anyTokens = fc.constantFrom(5, 1, 2, 10, 97, 1_000_000, 7_117_401_341, Number.POSITIVE_INFINITY)
const anyWindow = fc.record({
  tokens: anyTokens,
  window: fc.constantFrom(1000, 7, 60_000, 86_400_000, 2_592_000_000),
})

/** Windows of other sizes. Their lengths are so close that what one wrote counts for the others. */
function similarWindow(stepMs: number): fc.Arbitrary<WindowNumbers> {
  return fc.record({
    tokens: anyTokens,
    window: fc.constantFrom(stepMs, stepMs, 3 * stepMs, Math.ceil(stepMs / 2)),
  })
}

const anyBucket = fc
  .record({
    refill: fc.constantFrom('interval' as const, 'continuous' as const),
    refillRate: fc.constantFrom(1, 5, 0.1, 2.5, 1 / 3, 150),
    interval: fc.constantFrom(1000, 7, 100, 60_000, 86_400_000),
    maxTokens: fc.constantFrom(10, 1, 3, 7.5, 0.3, 9000),
    filled: fc.constantFrom(1, 1, 1, 0, 0.5),
  })
  .filter(({ maxTokens, refillRate, interval }) => (maxTokens / refillRate) * interval < MAX_PERIOD_MS)
  .map(({ filled, ...own }) => bucketPlan({ ...own, initialTokens: own.maxTokens * filled }))

const anyGcra = fc
  .record({
    limit: fc.constantFrom(10, 1, 3, 0.3, 150, 9000),
    period: fc.constantFrom(1000, 7, 60_000, 86_400_000),
    burst: fc.constantFrom(10, 1, 7.5, 0.5, 500),
  })
  .filter(({ limit, period, burst }) => (burst / limit) * period < MAX_PERIOD_MS)
  .map(gcraPlan)

const anyZone = { tokens: anyTokens, timeZone: fc.constantFrom('UTC', 'Europe/Berlin', 'Asia/Kathmandu') }
const anyCalendar: fc.Arbitrary<CalendarNumbers> = fc.oneof(
  fc.record({ ...anyZone, period: fc.constantFrom('minute', 'hour', 'day', 'week', 'month', 'year') }),
  fc.record({
    ...anyZone,
    period: fc.constantFrom('day', 'week', 'month', 'year'),
    every: fc.constantFrom(2, 3, 6),
  }),
)

const anyLockout = anyWindow.chain((own) =>
  fc
    .record({
      block: fc.constantFrom(1000, 7, 60_000),
      factor: fc.constantFrom(1, 2, 1.5, 10),
      longest: fc.constantFrom(1, 3, 100),
      forgive: fc.constantFrom(1000, 60_000, 86_400_000),
    })
    .map(({ longest, ...more }) => ({ ...own, ...more, max: more.block * longest })),
)

const hourly = (refill: BucketNumbers['refill'], share: number) => (maxTokens: number, interval: Duration) =>
  bucketPlan({ refill, refillRate: 1, interval, maxTokens, initialTokens: share * maxTokens })

const A_WINDOW = {
  counts: true,
  windowStart: (start: number) => ({ start }),
  keeps: 'what was used',
  debtsEnd: 'with the window',
  crossesOncePerPeriod: false,
  takesFractions: false,
  mayBeEmpty: true,
  lengths: 'any',
} as const

const ALGORITHMS: Readonly<Record<AlgorithmName, CountingRow | UncountedRow>> = {
  tokenBucket: {
    counts: true,
    keeps: 'what is left',
    debtsEnd: 'by refills',
    windowStart: () => ({}),
    crossesOncePerPeriod: false,
    takesFractions: true,
    mayBeEmpty: false,
    lengths: 'any',
    examples: {
      'token bucket': hourly('interval', 1),
      'token bucket, continuous': hourly('continuous', 1),
      'token bucket, partly filled': hourly('interval', 0.5),
    },
    anyPlan: anyBucket,
    similar: () => anyBucket,
    fromVector: ({ refill, refillRate = 0, interval = 0, maxTokens = 0 }) =>
      bucketPlan({
        refill: refill === 'continuous' ? 'continuous' : 'interval',
        ...{ refillRate, interval, maxTokens, initialTokens: maxTokens },
      }),
  },
  slidingWindow: {
    ...A_WINDOW,
    examples: { 'sliding window': (tokens, unit) => slidingWindowPlan({ tokens, window: tenOf(unit) }) },
    anyPlan: anyWindow.map(slidingWindowPlan),
    similar: ({ stepMs }) => similarWindow(stepMs).map(slidingWindowPlan),
    fromVector: ({ tokens = 0, window = 0 }) => slidingWindowPlan({ tokens, window }),
  },
  fixedWindow: {
    ...A_WINDOW,
    examples: { 'fixed window': (tokens, unit) => fixedWindowPlan({ tokens, window: tenOf(unit) }) },
    anyPlan: anyWindow.map(fixedWindowPlan),
    similar: ({ stepMs }) => similarWindow(stepMs).map(fixedWindowPlan),
    fromVector: ({ tokens = 0, window = 0 }) => fixedWindowPlan({ tokens, window }),
  },
  lockout: {
    ...A_WINDOW,
    examples: {
      lockout: (tokens, unit) => {
        const window = tenOf(unit)
        return lockoutPlan({ tokens, window, block: window, factor: 1, max: window, forgive: 1 })
      },
    },
    anyPlan: anyLockout.map(lockoutPlan),
    similar: ({ stepMs }) =>
      fc.tuple(anyLockout, similarWindow(stepMs)).map(([own, like]) => lockoutPlan({ ...own, ...like })),
    fromVector: () => {
      throw new Error('the shared vectors have no lockout')
    },
  },
  calendarWindow: {
    ...A_WINDOW,
    crossesOncePerPeriod: true,
    lengths: 'of the calendar',
    // The month of the example, in UTC.
    windowStart: (now) => ({ start: Date.UTC(new Date(now).getUTCFullYear(), new Date(now).getUTCMonth()) }),
    examples: {
      'calendar window': (tokens) => calendarWindowPlan({ tokens, period: 'month', timeZone: 'UTC' }),
    },
    anyPlan: anyCalendar.map(calendarWindowPlan),
    similar: () => anyCalendar.map(calendarWindowPlan),
    fromVector: () => {
      throw new Error('the shared vectors have no calendar')
    },
  },
  gcra: {
    counts: true,
    keeps: 'what is left',
    debtsEnd: 'by refills',
    windowStart: () => ({}),
    crossesOncePerPeriod: false,
    takesFractions: true,
    mayBeEmpty: false,
    lengths: 'any',
    examples: {
      gcra: (tokens, unit) => gcraPlan({ limit: tokens, period: tokens * msOf(unit), burst: tokens }),
    },
    anyPlan: anyGcra,
    similar: () => anyGcra,
    fromVector: () => {
      throw new Error('the shared vectors have no gcra')
    },
  },
  unlimited: { counts: false, keeps: 'nothing', limiter: Ratelimit.unlimited() },
}

/** A fixed example of an algorithm, with what its row says. */
export interface Example extends Omit<CountingRow, 'examples'> {
  readonly name: string
  readonly algorithm: AlgorithmName
  readonly of: (tokens: number, unit: Duration) => Plan
}

const rows = Object.entries(ALGORITHMS).flatMap(([algorithm, row]) =>
  row.counts === true ? [{ ...row, algorithm: algorithm as AlgorithmName }] : [],
)

/** The examples of all algorithms that count. */
export const allExamples: readonly Example[] = rows.flatMap(({ examples, ...row }) =>
  Object.entries(examples).map(([name, of]) => ({ ...row, name, of })),
)

/** The examples whose limit is full for a new key. */
export const examples: readonly Example[] = allExamples.filter(({ of }) => {
  const { rules } = of(1, 1000)
  return rules.fits(rules.fresh(0), 0, 1)
})

/** The limits without a count. */
export const uncounted: readonly {
  readonly name: string
  readonly algorithm: AlgorithmName
  readonly limiter: Limiter
}[] = Object.entries(ALGORITHMS).flatMap(([algorithm, row]) =>
  row.counts !== false
    ? []
    : [{ name: algorithm, algorithm: algorithm as AlgorithmName, limiter: row.limiter }],
)

/** Any limits, each algorithm as often as the others. */
export const anyPlan: fc.Arbitrary<Plan> = fc.oneof(...rows.map((row) => row.anyPlan))

/** A limit, and others that read what it has written. */
export const similarPlans: fc.Arbitrary<readonly Plan[]> = fc.oneof(
  ...rows.map((row) =>
    row.anyPlan.chain((own) =>
      fc.array(row.similar(own), { maxLength: 3 }).map((others) => [own, ...others]),
    ),
  ),
)

/** The limit of a shared vector. */
export function planOf(limiter: VectorLimiter): Plan {
  const row = rows.find(({ algorithm }) => algorithm === limiter.type)
  if (!row) throw new Error(`a vector of an unknown type: ${limiter.type}`)
  return row.fromVector(limiter)
}

/** Whether half a token can be taken from it. */
export function takesFractions({ algorithm }: Plan): boolean {
  return rows.some((row) => row.algorithm === algorithm && row.takesFractions)
}
