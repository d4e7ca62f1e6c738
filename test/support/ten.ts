import { calendarWindow } from '../../src/calendar/index.ts'
import { type Limiter, Ratelimit } from '../../src/index.ts'
import { Quota, type QuotaConfig } from '../../src/quota/index.ts'
import { TestClock } from './clock.ts'
import { hasServer, type TestDatabase } from './databases.ts'
import { type Example, examples, type Plan } from './limits.ts'
import { isGate } from './runs.ts'

export const HOUR_MS: number = 3_600_000

/** The month of the test's clock. */
export const JANUARY: { readonly start: number; readonly end: number } = {
  start: Date.UTC(2026, 0, 1),
  end: Date.UTC(2026, 1, 1),
}

/** An algorithm, with ten of it. */
export interface Kind extends Example {
  readonly plan: Plan
  readonly limiter: Limiter
}

/** All in the gate, on the server. Elsewhere one of each family, for each promise that all keep. */
const tried =
  isGate && hasServer()
    ? examples
    : examples.filter(({ name }) => ['token bucket', 'sliding window', 'calendar window'].includes(name))

/** Ten of each algorithm: one comes back an hour, or all after ten hours or with the month. */
export const kinds: readonly Kind[] = tried.map((example) => {
  const plan = example.of(10, '1h')
  return { ...example, plan, limiter: plan.limiter }
})

/** One kind of each algorithm, for tests in which the others would show the same. */
export const oneOfEachKind: readonly Kind[] = kinds.filter(
  ({ algorithm }, place) => kinds.findIndex((other) => other.algorithm === algorithm) === place,
)

type TenName = 'interval bucket' | 'continuous bucket' | 'sliding window' | 'fixed window' | 'calendar month'

/** Ten of one algorithm, for tests that are about it, or that may use any. */
export const TEN: Record<TenName, Limiter> = {
  'interval bucket': Ratelimit.tokenBucket(1, '1h', 10),
  'continuous bucket': Ratelimit.tokenBucket(1, '1h', 10, { refill: 'continuous' }),
  'sliding window': Ratelimit.slidingWindow(10, '10h'),
  'fixed window': Ratelimit.fixedWindow(10, '10h'),
  'calendar month': calendarWindow(10, 'month'),
}

/** A quota with a prefix and a clock of its own. */
export interface QuotaUnderTest {
  readonly clock: TestClock
  readonly prefix: string
  readonly config: QuotaConfig
  readonly quota: Quota
  /** With the version of each row, so that even writing the same again would show. */
  rows(): Promise<Record<string, unknown>[]>
}

let prefixes = 0

export function quotaOn(
  database: TestDatabase,
  limiter: Limiter,
  options: Partial<QuotaConfig> = {},
): QuotaUnderTest {
  const clock = new TestClock()
  const prefix = `quota ${prefixes++}`
  const config = {
    ...{ db: database.db, limiter, prefix, clock: clock.now, cleanupProbability: 0, durable: false },
    ...options,
  } as QuotaConfig
  const rows = () =>
    database.rows(
      `select xmin::text, ctid::text, to_jsonb(stored) as stored from rate_limit_ephemeral stored where prefix = $1`,
      [prefix],
    )
  return { clock, prefix, config, quota: new Quota(config), rows }
}

/** Thrown to roll a transaction back. The transaction rejects with it. */
export const UNDO: Error = new Error('undo')
