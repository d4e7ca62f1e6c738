import { schedule } from 'drizzle-ratelimit/schedule'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { balance } from '../../../src/credits/balance.ts'
import { Ratelimit, RatelimitError } from '../../../src/index.ts'
import type { StoredLimiter } from '../../../src/kernel/limits/algorithm.ts'
import { Quota, type QuotaConfig } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { allExamples } from '../../support/limits.ts'
import { runs } from '../../support/runs.ts'
import { anySteps, checkNumbers, type Ground, groundOf, type Step, type Taken } from './row-calls.ts'

// Others can write to the tables too, and rows of older versions may be there.

const database = useDatabase()
const LIMIT = 5

/** The ends of what a column can hold, and what lies between. */
const anyCount = fc.constantFrom(
  '0',
  '1',
  '5',
  '6',
  '-1',
  '9007199254740993',
  '9223372036854775807',
  '-9223372036854775808',
  null,
)
const anyTokens = fc.constantFrom(
  '0',
  '5',
  '2.5',
  '-3',
  '1e308',
  '-1e308',
  '1e-300',
  'Infinity',
  '-Infinity',
  'NaN',
  '-1e99',
  null,
)
const anyTime = fc.oneof(
  fc.constantFrom('infinity', '-infinity', '4713-01-01 BC', '294276-12-31', null),
  fc.integer({ min: -100_000_000, max: 100_000_000 }),
)
const anyRow = fc.record({
  count: anyCount,
  prevCount: anyCount,
  windowStart: anyTime,
  tokens: anyTokens,
  lastRefill: anyTime,
  expiresAt: anyTime.filter((time) => time !== null),
})
type Row = typeof anyRow extends fc.Arbitrary<infer T> ? T : never
/** What only some limiters take. */
const anyOptions = fc.record({
  thresholds: fc.constantFrom([], [0.5, { used: 3 }, { left: 1 }]),
  keepEnded: fc.boolean(),
  coalesce: fc.boolean(),
})

let rows = 0

/** A key of the limiter that has this row. */
async function groundWith(row: Row, limiter: StoredLimiter, options: Partial<QuotaConfig>) {
  const clock = new TestClock()
  const time = (value: string | number | null) =>
    typeof value === 'number' ? `to_timestamp(${(clock.ms + value) / 1000})` : quoted(value)
  const prefix = `any row ${rows++}`
  await database.script(`insert into rate_limit_ephemeral values ('${prefix}', 'key', ${row.count}, ${row.prevCount},
    ${time(row.windowStart)}, ${quoted(row.tokens)}, ${time(row.lastRefill)}, ${time(row.expiresAt)})`)
  return groundOf({ db: database.db, clock, prefix, key: 'key', limiter }, options)
}

function quoted(value: string | null): string {
  return value === null ? 'null' : `'${value}'`
}

/** The codes with which a call may be refused. */
function refusalsOf({ name, rate }: Step): RegExp {
  // What is never denied may be more than can be counted.
  if (name === 'limit force' || name === 'grant') return /^INVALID_|^COUNT_OVERFLOW$/
  // An estimate of 0 leaves a row of another plan as it is.
  return rate === 0 ? /^INVALID_|^OTHER_PLAN$/ : /^INVALID_/
}

/** Makes the calls, each of which has to answer, and none of which may take what the limit does not have. */
async function makeAll(steps: readonly Step[], ground: Ground, limit: number): Promise<void> {
  let [held, most] = [0, limit]
  for (const step of steps) {
    const done = await step.call(ground, step.rate).catch((error: unknown): Taken => {
      if (!(error instanceof RatelimitError)) throw error
      expect(error.code).toMatch(refusalsOf(step))
      return { most: 0, kept: 0 }
    })
    if (done.most > 0) expect(held + done.most).toBeLessThanOrEqual(most + 1e-6)
    held = Math.max(held + done.kept, 0)
    most += done.granted ?? 0
    const left = await ground.quota.getRemaining(ground.key)
    checkNumbers(left)
    expect(left.remaining).toBeLessThanOrEqual(most)
    expect(left.used).not.toBeNaN()
  }
}

describe.each(allExamples)('$name', ({ of, debtsEnd }) => {
  test('answers every call on a row of any content, and is whole again by itself', async () => {
    await fc.assert(
      fc.asyncProperty(anyRow, anySteps, anyOptions, async (row, steps, options) => {
        const { limiter } = of(LIMIT, '1s')
        const ground = await groundWith(row, limiter, options)
        const { clock, quota, key } = ground
        await makeAll(steps, ground, LIMIT)

        const mayOwe =
          debtsEnd === 'by refills' &&
          (Math.abs(Number(row.tokens)) > LIMIT || steps.some(({ name }) => name === 'limit force'))
        clock.advance(2 * limiter.params.periodMs)
        if (!mayOwe) expect((await quota.getRemaining(key)).remaining).toBeGreaterThan(0)
        // A row ahead of the clock counts for a period at most, and a window fades in two.
        clock.advance(2 * limiter.params.periodMs)
        const { remaining: whatNewKeysHave } = await quota.getRemaining('new key')
        const { remaining } = await quota.getRemaining(key)
        if (!mayOwe) expect(remaining).toBeGreaterThanOrEqual(whatNewKeysHave)
      }),
      runs(30),
    )
  })
})

test('a balance answers every call on a row of any content', async () => {
  await fc.assert(
    fc.asyncProperty(anyRow, anySteps, anyOptions, async (row, steps, { coalesce }) => {
      const ground = await groundWith(row, balance(), { coalesce })
      const isWhole = row.count !== null && row.prevCount !== null && row.lastRefill !== null
      const limit = Math.min(Math.max(Number(row.prevCount), 0), Number.MAX_SAFE_INTEGER)
      // Credits have no reset.
      const own = steps.filter(({ name }) => name !== 'resetUsedTokens')
      await makeAll(own, ground, isWhole ? limit : 0)
    }),
    runs(60),
  )
})

test.each([
  [
    'token bucket',
    Ratelimit.tokenBucket(1, '1s', LIMIT),
    { tokens: '2', last_refill: -1500 },
    { used: LIMIT - 3 },
  ],
  ['fixed window', Ratelimit.fixedWindow(LIMIT, '10s'), { count: '3', window_start: -500 }, { used: 3 }],
  [
    'sliding window',
    Ratelimit.slidingWindow(LIMIT, '10s'),
    { count: '1', prev_count: '4', window_start: -5000 },
    { used: 3 },
  ],
] as const)(
  'a row that other software wrote is read: %s',
  async (name, limiter, columns: Readonly<Record<string, string | number>>, expected) => {
    const clock = new TestClock()
    // With microseconds, as clock_timestamp() has them.
    const value = (each: string | number) =>
      typeof each === 'number'
        ? `to_timestamp(${(clock.ms + each) / 1000}) + interval '400 microseconds'`
        : each
    const list = Object.values(columns).map(value)
    await database.script(`insert into rate_limit_ephemeral (prefix, key, ${Object.keys(columns)}, expires_at)
      values ('plain', '${name}', ${list}, now())`)
    const ratelimit = new Quota({
      durable: false,
      db: database.db,
      limiter,
      prefix: 'plain',
      clock: clock.now,
    })
    expect(await ratelimit.getRemaining(name)).toMatchObject({
      ...expected,
      remaining: LIMIT - expected.used,
    })
    expect(await ratelimit.limit(name)).toMatchObject({ success: true, remaining: LIMIT - expected.used - 1 })
  },
)

describe.each([
  ['token bucket', Ratelimit.tokenBucket(1, '1s', LIMIT), 'last_refill'],
  ['gcra', Ratelimit.gcra(1, '1s', { burst: LIMIT }), 'window_start'],
] as const)('%s', (name, limiter, date) => {
  test.each([
    ['-infinity', '0'],
    ['infinity', '0'],
    ['now', 'NaN'],
    ['now', '1e308'],
    ['now', '-1e308'],
  ])('a row of %s with %s tokens cannot be its own, and counts as none', async (time, tokens) => {
    const clock = new TestClock()
    const key = `${name} ${time} ${tokens}`
    const written = time === 'now' ? `to_timestamp(${clock.ms / 1000})` : quoted(time)
    await database.script(`insert into rate_limit_ephemeral (prefix, key, tokens, ${date}, expires_at)
      values ('impossible', '${key}', '${tokens}', ${written}, now())`)
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'impossible', clock: clock.now })
    const answer = await ratelimit.limit(key)
    expect(answer).toEqual(await ratelimit.limit(`fresh ${key}`))
    expect(answer).toMatchObject({ success: true, remaining: LIMIT - 1 })
    expect(await ratelimit.limit(key, { rate: LIMIT })).toMatchObject({ success: false, retryAfter: 1000 })
  })
})

test.each([
  ['token bucket', Ratelimit.tokenBucket(1, '1s', LIMIT), 'last_refill'],
  ['gcra', Ratelimit.gcra(1, '1s', { burst: LIMIT }), 'window_start'],
] as const)(
  'a start that is promised for later than any time leaves a call an answer: %s',
  async (name, limiter, date) => {
    const clock = new TestClock()
    await database.script(`insert into rate_limit_ephemeral (prefix, key, tokens, ${date}, prev_count, expires_at)
      values ('promised', '${name}', ${LIMIT}, to_timestamp(${clock.ms / 1000}), 9223372036854775807, now())`)
    const ratelimit = new Quota({
      durable: false,
      db: database.db,
      limiter,
      prefix: 'promised',
      clock: clock.now,
    })
    expect(await ratelimit.limit(name)).toMatchObject({ success: true, remaining: LIMIT - 1 })
    expect(await ratelimit.limit(name, { rate: -1 })).toMatchObject({ success: true, returned: 0 })
    const begun = await schedule(ratelimit, name, { within: 0 })
    expect(begun).toMatchObject({ success: true })
    if (begun.success) expect(await begun.cancel()).toBeDefined()
    expect(await ratelimit.limit(name, { rate: -1 })).toMatchObject({ success: true, returned: 0 })
  },
)

test.each([
  ['fixed window', Ratelimit.fixedWindow(LIMIT, '10s'), { count: -3 }, LIMIT],
  ['sliding window', Ratelimit.slidingWindow(LIMIT, '10s'), { count: LIMIT, prev_count: -1 }, 0],
  ['calendar window', calendarWindow(LIMIT, 'month'), { count: -3, prev_count: -1, tokens: 0 }, LIMIT],
] as const)(
  'a negative count counts as 0, and the rest of the row counts as it is: %s',
  async (name, limiter, columns, remaining) => {
    const clock = new TestClock()
    const startMs = clock.ms - 5000
    await database.script(`insert into rate_limit_ephemeral (prefix, key, window_start, ${Object.keys(columns)}, expires_at)
      values ('below', '${name}', to_timestamp(${startMs / 1000}), ${Object.values(columns)}, now())`)
    const ratelimit = new Quota({
      durable: false,
      db: database.db,
      limiter,
      prefix: 'below',
      clock: clock.now,
    })
    expect(await ratelimit.getRemaining(name)).toMatchObject({ remaining })
    expect(await ratelimit.limit(name, { rate: remaining + 1 })).toMatchObject({ success: false, remaining })
    expect(await ratelimit.limit(name, { rate: remaining })).toMatchObject({ success: true, remaining: 0 })
    const [row] = await database.rows(`select (extract(epoch from window_start) * 1000)::bigint::text as start
      from rate_limit_ephemeral where prefix = 'below' and key = '${name}'`)
    expect(row).toEqual({ start: String(startMs) })
  },
)
