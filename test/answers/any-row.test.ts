import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../src/calendar.ts'
import { Ratelimit, RatelimitError } from '../../src/index.ts'
import { TestClock } from '../support/clock.ts'
import { useDatabase } from '../support/databases.ts'
import { allExamples } from '../support/limits.ts'

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
  fc.integer({ min: -100_000_000, max: 100_000_000 }).map((ms) => ms),
)
const anyRow = fc.record({
  count: anyCount,
  prevCount: anyCount,
  windowStart: anyTime,
  tokens: anyTokens,
  lastRefill: anyTime,
})
const anyRates = fc.array(fc.constantFrom(1, 5, 0, -1, 6, -(2 ** 53 - 1), 2 ** 53 - 1), {
  minLength: 1,
  maxLength: 6,
})

let rows = 0

describe.each(allExamples)('$name', ({ of, debtsEnd }) => {
  test('answers every call on a row of any content, and is whole again by itself', async () => {
    await fc.assert(
      fc.asyncProperty(anyRow, anyRates, fc.boolean(), async (row, rates, force) => {
        const clock = new TestClock()
        const key = `key ${rows++}`
        const { limiter } = of(LIMIT, '1s')
        const ratelimit = new Ratelimit({
          db: database.db,
          limiter,
          prefix: 'any row',
          clock: clock.now,
          cleanupProbability: 0,
        })
        const time = (value: string | number | null) =>
          value === null
            ? 'null'
            : typeof value === 'string'
              ? `'${value}'`
              : `to_timestamp(${(clock.ms + value) / 1000})`
        await database.script(`insert into rate_limit_ephemeral values ('any row', '${key}', ${row.count}, ${row.prevCount},
          ${time(row.windowStart)}, ${row.tokens === null ? 'null' : `'${row.tokens}'`}, ${time(row.lastRefill)}, now())`)

        let granted = 0
        for (const rate of rates) {
          const answer = await ratelimit.limit(key, { rate })
          expect(Number.isNaN(answer.reset) || Number.isNaN(answer.remaining)).toBe(false)
          if (answer.success && rate > 0) granted += rate
          const { remaining, used } = await ratelimit.getRemaining(key)
          expect(remaining).toBeGreaterThanOrEqual(0)
          expect(remaining).toBeLessThanOrEqual(LIMIT)
          expect(used).not.toBeNaN()
        }
        if (rates.every((rate) => rate >= 0)) expect(granted).toBeLessThanOrEqual(LIMIT)

        // A call into debt is also an answer.
        if (force) expect(await ratelimit.limit(key, { rate: 3, force })).toMatchObject({ success: true })
        const isDebt = debtsEnd === 'by refills' && Math.abs(Number(row.tokens)) > LIMIT
        clock.advance(2 * limiter.params.periodMs)
        if (!isDebt && !force) expect((await ratelimit.getRemaining(key)).remaining).toBeGreaterThan(0)
        // A row ahead of the clock counts for a period at most, and a window fades in two.
        clock.advance(2 * limiter.params.periodMs)
        const { remaining: whatNewKeysHave } = await ratelimit.getRemaining('new key')
        const { remaining } = await ratelimit.getRemaining(key)
        if (!isDebt) expect(remaining).toBeGreaterThanOrEqual(whatNewKeysHave)
      }),
      { numRuns: 30, ...(process.env['FC_SEED'] ? { seed: Number(process.env['FC_SEED']) } : {}) },
    )
  })
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
  'a row that was written without this package is read: %s',
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
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'plain', clock: clock.now })
    expect(await ratelimit.getRemaining(name)).toMatchObject({
      ...expected,
      remaining: LIMIT - expected.used,
    })
    expect(await ratelimit.limit(name)).toMatchObject({ success: true, remaining: LIMIT - expected.used - 1 })
  },
)

test.each([
  ['fixed window', Ratelimit.fixedWindow(LIMIT, '10s'), { count: -3 }, LIMIT],
  ['sliding window', Ratelimit.slidingWindow(LIMIT, '10s'), { count: LIMIT, prev_count: -1 }, 0],
  ['calendar window', calendarWindow(LIMIT, 'month'), { count: -3, prev_count: -1, tokens: 0 }, LIMIT],
] as const)(
  'a count below 0 counts as 0, and the rest of the row as it is: %s',
  async (name, limiter, columns, remaining) => {
    const clock = new TestClock()
    const startMs = clock.ms - 5000
    await database.script(`insert into rate_limit_ephemeral (prefix, key, window_start, ${Object.keys(columns)}, expires_at)
      values ('below', '${name}', to_timestamp(${startMs / 1000}), ${Object.values(columns)}, now())`)
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'below', clock: clock.now })
    expect(await ratelimit.getRemaining(name)).toMatchObject({ remaining })
    expect(await ratelimit.limit(name, { rate: remaining + 1 })).toMatchObject({ success: false, remaining })
    expect(await ratelimit.limit(name, { rate: remaining })).toMatchObject({ success: true, remaining: 0 })
    const [row] = await database.rows(`select (extract(epoch from window_start) * 1000)::bigint::text as start
      from rate_limit_ephemeral where prefix = 'below' and key = '${name}'`)
    expect(row).toEqual({ start: String(startMs) })
  },
)

test('any key, any rate and any option ends in an answer or in an error of the package', async () => {
  const ratelimit = new Ratelimit({
    db: database.db,
    limiter: Ratelimit.slidingWindow(LIMIT, '1s'),
    prefix: 'any call',
  })
  const bucket = Ratelimit.tokenBucket(1, '1s', LIMIT)
  const options = fc.record(
    {
      rate: fc.oneof(fc.integer(), fc.double(), fc.anything()),
      force: fc.oneof(fc.boolean(), fc.anything()),
      limiter: fc.oneof(fc.constant(bucket), fc.constant(Ratelimit.unlimited()), fc.anything()),
    },
    { requiredKeys: [] },
  )
  const calls: ((key: never, given: never) => Promise<unknown>)[] = [
    (key, given) => ratelimit.limit(key, given),
    (key, given) => ratelimit.getRemaining(key, given),
    (key, given) => ratelimit.resetUsedTokens(key, given),
    (key, given) => ratelimit.blockUntilReady(key, 0, given),
    async (key, given: { rate: never }) => {
      const reserved = await ratelimit.reserve(key, given)
      if (reserved.success) await reserved.commit(given.rate)
    },
    (key, given: object) => Ratelimit.limitAll([{ ratelimit, key, ...given }]),
  ]
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(fc.string({ unit: 'binary' }), fc.string(), fc.anything()),
      options,
      fc.constantFrom(...calls),
      async (key, given, call) => {
        await call(key as never, given as never).catch((error: unknown) => {
          if (!(error instanceof RatelimitError)) throw error
          expect(error.code).toMatch(/^INVALID_|^ALREADY_SETTLED$/)
        })
      },
    ),
    { numRuns: 300, ...(process.env['FC_SEED'] ? { seed: Number(process.env['FC_SEED']) } : {}) },
  )
})
