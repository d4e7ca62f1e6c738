import { calendarWindow } from '../../../src/calendar/index.ts'
import { balance } from '../../../src/credits/balance.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'

/**
 * How the checker adds up the keys of a limit.
 *
 * - `counted`: nothing refills while the test runs. What was granted can be compared with the rows.
 * - `windows`: each grant has a count of its own in a window. The answer's `reset` says which window.
 * - `rate`: only the sum over the time of the test is known.
 */
export type Kind = 'counted' | 'windows' | 'rate'

/**
 * The key of a `rate` limit on which checks may be granted too late for their callers. What they took may have
 * come back when they give it back. Then more than the limit is granted with one `reset`.
 */
export const WAITED_FOR = 0

/** A limit of the test. */
export interface Tested {
  readonly prefix: string
  readonly kind: Kind
  readonly limiter: Limiter
  /** The most that a key can have used at a time, under any plan, besides credits. */
  readonly most: number
  readonly keys: number
  /** Another limit for the same rows: a customer's plan. */
  readonly plan?: Limiter
  /** In SQL, what a row says was used. */
  readonly used?: string
  /** In SQL, what a row of a balance says was added to it. */
  readonly credited?: string
  /** How much comes back in a millisecond, at most. */
  readonly refillPerMs?: number
  /** Whether the keys are given their whole limit again now and then. */
  readonly isReset?: boolean
  /** Whether `closePeriods` may hand out its windows. */
  readonly hasPeriods?: boolean
  /** Options of the limiter. */
  readonly options?: {
    readonly inMemoryBlock?: true
    readonly durable?: true
    readonly synchronousCommit?: boolean
  }
}

const LARGE = 1_000_000
const SMALL = 60
const YEAR = 365 * 86_400_000
const CENTURY = 100 * YEAR
const DURABLE = { durable: true } as const
const FLUSHED = { durable: true, synchronousCommit: true } as const
const IN_MEMORY = { inMemoryBlock: true } as const

/** @param started A time before the test, so that no calendar's year ends while it runs. */
export function limitsFrom(started: number): readonly Tested[] {
  const { fixedWindow, slidingWindow, tokenBucket, gcra } = Ratelimit
  const calendar = (tokens: number) => calendarWindow(tokens, 'year', { anchor: new Date(started) })
  const windows = {
    fixed: [(tokens: number) => fixedWindow(tokens, YEAR), undefined],
    sliding: [(tokens: number) => slidingWindow(tokens, YEAR / 100), DURABLE],
    'sliding in whole numbers': [(tokens: number) => slidingWindow(tokens, CENTURY / 10), undefined],
    calendar: [calendar, FLUSHED],
  } as const
  return [
    ...Object.entries(windows).flatMap(([prefix, [limiter, options]]): Tested[] => [
      countedWindow(prefix, limiter, LARGE, options),
      countedWindow(`${prefix}, small`, limiter, SMALL, options),
    ]),
    countedBucket('bucket', (intervalMs) => tokenBucket(LARGE, intervalMs, LARGE), LARGE),
    {
      ...countedBucket('gcra', (intervalMs) => gcra(LARGE, intervalMs), LARGE),
      refillPerMs: LARGE / (CENTURY / 3),
    },
    countedBucket('bucket, small', (intervalMs) => tokenBucket(SMALL, intervalMs, SMALL), SMALL),
    {
      ...countedBucket(
        'continuous bucket',
        (intervalMs) => tokenBucket(LARGE, intervalMs, LARGE, { refill: 'continuous' }),
        LARGE,
      ),
      refillPerMs: LARGE / (CENTURY / 2),
    },
    countedBucket(
      'partly filled bucket',
      (intervalMs) => tokenBucket(LARGE, intervalMs, 2 * LARGE, { initialTokens: LARGE }),
      LARGE,
    ),
    balanceOf('balance', undefined),
    balanceOf('durable balance', DURABLE),
    { ...inWindows('reset', fixedWindow(300, YEAR), 300, IN_MEMORY), isReset: true },
    { ...inWindows('short', fixedWindow(20, 150), 20), hasPeriods: true },
    { ...inWindows('short and durable', fixedWindow(20, 400), 20, DURABLE), hasPeriods: true },
    { ...inWindows('short and sliding', slidingWindow(20, 250), 20), kind: 'rate', refillPerMs: 20 / 250 },
    refilled('refilled', tokenBucket(5, 50, 20), 5 / 50),
    refilled('refilled, gcra', gcra(20, 200), 20 / 200),
    refilled('refilled steadily', tokenBucket(1, 10, 20, { refill: 'continuous' }), 1 / 10),
  ]
}

function countedWindow(
  prefix: string,
  limiter: (tokens: number) => Limiter,
  tokens: number,
  options: Tested['options'],
): Tested {
  return {
    ...{ prefix, kind: 'counted', limiter: limiter(tokens), keys: 5, used: 'count' },
    ...{ plan: limiter(2 * tokens), most: 2 * tokens },
    ...(options ? { options } : {}),
  }
}

/** A plan of a bucket has another interval, for a smaller one would take tokens away. */
function countedBucket(prefix: string, limiter: (intervalMs: number) => Limiter, tokens: number): Tested {
  return {
    ...{ prefix, kind: 'counted', limiter: limiter(CENTURY / 2), keys: 5, used: `${tokens} - tokens` },
    ...{ plan: limiter(CENTURY / 3), most: tokens },
  }
}

function balanceOf(prefix: string, options: Tested['options']): Tested {
  return {
    ...{ prefix, kind: 'counted', limiter: balance(), keys: 5, most: 0 },
    ...{ used: 'count', credited: 'prev_count' },
    ...(options ? { options } : {}),
  }
}

function inWindows(prefix: string, limiter: Limiter, most: number, options?: Tested['options']): Tested {
  return { prefix, kind: 'windows', limiter, most, keys: 8, ...(options ? { options } : {}) }
}

function refilled(prefix: string, limiter: Limiter, refillPerMs: number): Tested {
  return { prefix, kind: 'rate', limiter, most: 20, keys: 8, refillPerMs }
}
