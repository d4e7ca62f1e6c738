import { lockout } from 'drizzle-ratelimit/lockout'
import { usage } from 'drizzle-ratelimit/reports'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import { spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { kinds, quotaOn } from '../../support/ten.ts'

// A limit of Infinity counts and never denies.

const database = useDatabase()
const never = Number.POSITIVE_INFINITY
const windows = kinds.filter(({ keeps }) => keeps === 'what was used')
const INFINITE: Record<string, Limiter> = {
  'fixed window': Ratelimit.fixedWindow(never, '10h'),
  'sliding window': Ratelimit.slidingWindow(never, '10h'),
  lockout: lockout(never, '10h', { block: '1h', max: '1d' }),
  'calendar window': calendarWindow(never, 'month'),
}

test('every window can be infinite', () => {
  expect(Object.keys(INFINITE)).toEqual(expect.arrayContaining(windows.map(({ name }) => name)))
})

describe.each(windows)('$name', ({ name, limiter: ten }) => {
  const limiter = INFINITE[name] as Limiter

  test('counts what is used, and allows it', async () => {
    const { clock, quota } = quotaOn(database, limiter, { thresholds: [0.1], dryRun: true })
    const allowed = { success: true, limit: never, remaining: never, reset: clock.ms, retryAfter: 0 }
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0, remaining: never, reset: clock.ms })
    for (const rate of [1, 1_000_000, Number.MAX_SAFE_INTEGER - 2_000_000, -500_000, 0]) {
      expect(await quota.limit('key', { rate })).toMatchObject(allowed)
    }
    expect(await quota.getRemaining('key')).toMatchObject({
      ...{ used: Number.MAX_SAFE_INTEGER - 1_499_999, limit: never, remaining: never },
    })
    await quota.resetUsedTokens('key')
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
  })

  test('an estimate that cannot be counted is denied until the window ends, and changes nothing', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 123_456 })
    const huge = { rate: Number.MAX_SAFE_INTEGER }
    const denied = await quota.reserve('key', huge)
    expect(denied).toMatchObject({ success: false, remaining: Number.MAX_SAFE_INTEGER - 123_456 })
    expect(await limitAll([{ ratelimit: quota, key: 'key', ...huge }])).toMatchObject({
      success: false,
      retryAfter: denied.retryAfter,
    })
    const spent = await spend([{ ratelimit: quota, key: 'key' }], huge)
    expect(spent).toMatchObject({ success: false, retryAfter: denied.retryAfter })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 123_456 })

    clock.advance(denied.retryAfter - 1)
    expect(await quota.limit('key', huge)).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    // That many failures start a block.
    const remaining = name === 'lockout' ? 0 : never
    expect(await quota.limit('key', huge)).toMatchObject({ success: true, remaining })
  })

  test('counts many keys at once, in limitAll and by a reservation', async () => {
    const { quota } = quotaOn(database, limiter)
    const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`)
    for (let again = 0; again < 2; again++) {
      await Promise.all(keys.flatMap((key) => [quota.limit(key, { rate: 3 }), quota.limit(key, { rate: 4 })]))
    }
    const { success } = await limitAll(keys.map((key) => ({ ratelimit: quota, key, rate: 1 })))
    expect(success).toBe(true)
    const looks = await quota.getRemainingAll(keys)
    expect(looks.map(({ used }) => used)).toEqual(keys.map(() => 15))
    const reserved = await quota.reserve('key 0', { rate: 100 })
    if (reserved.success) await reserved.commit(10)
    expect(await quota.getRemaining('key 0')).toMatchObject({ used: 25 })
  })

  test('the next plan counts what was used, and usage lists it', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 25 })
    expect(await quota.getRemaining('key', { limiter: ten })).toMatchObject({ used: 25, remaining: 0 })
    expect(await quota.limit('key', { limiter: ten })).toMatchObject({ success: false })
    const listed = [{ key: 'key', used: 25, limit: never }]
    expect(await usage(quota)).toMatchObject(listed)
    expect(await usage(quota, { limiterOf: () => limiter })).toMatchObject(listed)
  })
})

test.each([
  ['a token bucket', () => Ratelimit.tokenBucket(1, '1h', never)],
  ['a refill', () => Ratelimit.tokenBucket(never, '1h', 10)],
  ['what a bucket has at first', () => Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: never })],
  ['a rate', () => Ratelimit.gcra(never, '1h')],
  ['a burst', () => Ratelimit.gcra(1, '1h', { burst: never })],
  ['less than nothing', () => Ratelimit.fixedWindow(-never, '1h')],
])('%s cannot be infinite', (_, make) => {
  expect(make).toThrow(expect.objectContaining({ code: 'INVALID_LIMIT' }))
})
