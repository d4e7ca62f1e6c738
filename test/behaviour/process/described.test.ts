import { lockout } from 'drizzle-ratelimit/lockout'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Ratelimit } from '../../../src/index.ts'

test.each([
  ['a fixed window', Ratelimit.fixedWindow(100, '1m'), 100, 60_000],
  ['a sliding window', Ratelimit.slidingWindow(100, '1m'), 100, 60_000],
  ['a large sliding window', Ratelimit.slidingWindow(1e12, '1d'), 1e12, 86_400_000],
  ['a bucket', Ratelimit.tokenBucket(5, '10s', 20), 20, 40_000],
  ['a bucket that is never filled to the brim', Ratelimit.tokenBucket(3, '10s', 20), 20, 70_000],
  ['a continuous bucket', Ratelimit.tokenBucket(3, '10s', 20, { refill: 'continuous' }), 20, 66_667],
  ['a lockout', lockout(5, '15m', { block: '1m' }), 5, 900_000],
  ['GCRA', Ratelimit.gcra(60, '1m', { burst: 10 }), 10, 10_000],
  ['the calendar', calendarWindow(1000, 'month'), 1000, undefined],
  ['no limit', Ratelimit.unlimited(), Number.POSITIVE_INFINITY, undefined],
])('%s has its limit and window as properties', (_, limiter, limit, windowMs) => {
  expect([limiter.limit, limiter.windowMs]).toEqual([limit, windowMs])
})
