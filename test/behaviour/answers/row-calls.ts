import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { expect } from 'vitest'
import { grant } from '../../../src/credits/grant-balance.ts'
import { limitAll, Ratelimit, rateLimitEphemeral } from '../../../src/index.ts'
import { handleOf } from '../../../src/kernel/engine/handles.ts'
import type { StoredLimiter } from '../../../src/kernel/limits/algorithm.ts'
import { callOf } from '../../../src/kernel/options/validate.ts'
import { closePeriods, Quota, type QuotaConfig, reserveAll, spend } from '../../../src/quota/index.ts'
import type { TestClock } from '../../support/clock.ts'
import type { Db } from '../../support/databases.ts'

// The calls that can meet a row, and what each of them takes from its limit.

/** A limiter and the key of the row that its calls meet. */
export interface Ground {
  readonly db: Db
  readonly clock: TestClock
  readonly prefix: string
  readonly key: string
  readonly limiter: StoredLimiter
  readonly quota: Quota
  /** Of another prefix, with a limit that is never reached. */
  readonly other: Quota
}

/** A ground for the limiter. */
export function groundOf(
  own: Pick<Ground, 'db' | 'clock' | 'prefix' | 'key' | 'limiter'>,
  options: Partial<QuotaConfig>,
): Ground {
  const config = { db: own.db, clock: own.clock.now, cleanupProbability: 0 }
  const { prefix, limiter } = own
  const wide = { prefix: `${prefix} other`, limiter: Ratelimit.fixedWindow(2 ** 53 - 1, '1s') }
  return {
    ...own,
    quota: new Quota({ durable: false, ...config, ...options, prefix, limiter } as QuotaConfig),
    other: new Quota({ durable: false, ...config, ...wide }),
  }
}

/** What a call has taken: as much as the limit had to have, and as much as stays taken, or is given back. */
export interface Taken {
  readonly most: number
  readonly kept: number
  /** What was granted to a balance. */
  readonly granted?: number
}

const NOTHING: Taken = { most: 0, kept: 0 }
const taken = (most: number, kept = most): Taken => ({ most, kept })

type Call = (on: Ground, rate: number) => Promise<Taken>

/** Calls by their names. A call that is refused throws an error of the package. */
const CALLS: Readonly<Record<string, Call>> = {
  limit: async ({ quota, key }, rate) => {
    const { success } = await quota.limit(key, { rate })
    return success ? taken(Math.max(rate, 0), rate) : NOTHING
  },
  'limit atLeast': async ({ quota, key }, rate) => {
    const answer = await quota.limit(key, { rate, atLeast: 1 })
    return answer.success ? taken(answer.granted) : NOTHING
  },
  'limit force': async ({ quota, key }) => {
    expect(await quota.limit(key, { rate: 3, force: true })).toMatchObject({ success: true })
    return taken(0, 3)
  },
  'limit in a transaction': async ({ db, quota, key }, rate) => {
    const { success } = await db.transaction((tx) => quota.limit(key, { rate, tx }))
    return success ? taken(Math.max(rate, 0), rate) : NOTHING
  },
  blockUntilReady: async ({ quota, key }, rate) => {
    const { success } = await quota.blockUntilReady(key, 0, { rate })
    return success ? taken(Math.max(rate, 0), rate) : NOTHING
  },
  getRemainingAll: async ({ quota, key }) => {
    for (const each of await quota.getRemainingAll([key, 'new', key])) checkNumbers(each)
    return NOTHING
  },
  'reserve and release': async ({ quota, key }, rate) => {
    const reserved = await quota.reserve(key, { rate })
    if (!reserved.success) return NOTHING
    await reserved.release()
    return taken(rate, 0)
  },
  'reserve and commit': async ({ quota, key }, rate) => {
    const reserved = await quota.reserve(key, { rate })
    if (!reserved.success) return NOTHING
    checkNumbers(await reserved.commit(Math.min(rate, 1)))
    return taken(rate, Math.min(rate, 1))
  },
  'reserve and settle': async ({ quota, key }, rate) => {
    const id = randomUUID()
    const reserved = await quota.reserve(key, { rate, id, expires: '1m' })
    if (!reserved.success) return NOTHING
    checkNumbers(await quota.settle({ key, id }, rate))
    return taken(rate)
  },
  limitAll: async ({ quota, other, key }, rate) => {
    const { success, results } = await limitAll([
      { ratelimit: quota, key, rate },
      { ratelimit: other, key },
    ])
    results.forEach(checkNumbers)
    return success ? taken(Math.max(rate, 0), rate) : NOTHING
  },
  reserveAll: async ({ quota, other, key }, rate) => {
    const reserved = await reserveAll([
      { ratelimit: quota, key, rate },
      { ratelimit: other, key },
    ])
    if (!reserved.success) return NOTHING
    const answers = await reserved.commit([Math.min(rate, 1), 1])
    answers.forEach(checkNumbers)
    return taken(rate, Math.min(rate, 1))
  },
  spend: async ({ quota, other, key }, rate) => {
    const requests = [
      { ratelimit: quota, key },
      { ratelimit: other, key },
    ]
    const spent = await spend(requests, { rate })
    spent.results.forEach(checkNumbers)
    return spent.success ? taken(spent.granted[0] ?? 0) : NOTHING
  },
  'spend and release': async ({ quota, key }, rate) => {
    const spent = await spend([{ ratelimit: quota, key }], { rate })
    if (!spent.success) return NOTHING
    await spent.release()
    return taken(rate, 0)
  },
  grant: async ({ quota, key, prefix, limiter }, rate) => {
    const { checker } = handleOf(quota, 'It has a handle.')
    checkNumbers(await grant(checker, callOf(prefix, limiter, key, { rate }), undefined))
    return { ...NOTHING, granted: rate }
  },
  usage: async ({ db, clock, prefix, limiter }) => {
    const options = { prefix, durable: false, clock: clock.now }
    for (const each of await usage({ db, ...options, limiter })) {
      expect(each.used).not.toBeNaN()
      if (!each.isOther) checkNumbers(each)
    }
    for (const each of await usage({ db, ...options, limiterOf: () => limiter })) checkNumbers(each)
    return NOTHING
  },
  'row numbers': async ({ db, clock, prefix, limiter }) => {
    const [used, remaining, reset] = [usedOf, remainingOf, resetOf].map((numberOf) =>
      numberOf(rateLimitEphemeral, limiter, { clock: clock.now }),
    )
    const rows = await db
      .select({ used, remaining, reset } as Record<string, ReturnType<typeof usedOf>>)
      .from(rateLimitEphemeral)
      .where(eq(rateLimitEphemeral.prefix, prefix))
    for (const value of rows.flatMap((row) => Object.values(row))) {
      expect(value).toBeTypeOf('number')
      expect(value).not.toBeNaN()
    }
    return NOTHING
  },
  // Only what the row had before may be in a period that is over.
  closePeriods: async ({ db, clock, prefix, limiter }) => {
    const rows = { db, prefix, limiter, durable: false, clock: clock.now }
    for (const { start, end, used } of await db.transaction((tx) => closePeriods(rows, { tx }))) {
      expect(start).toBeLessThan(end)
      expect(end).toBeLessThanOrEqual(clock.ms)
      expect(used).toBeGreaterThanOrEqual(0)
    }
    return NOTHING
  },
  resetUsedTokens: async ({ quota, key }) => {
    await quota.resetUsedTokens(key)
    return taken(0, Number.NEGATIVE_INFINITY)
  },
  cleanup: async ({ quota }) => {
    expect(await quota.cleanup()).toBeLessThanOrEqual(1)
    return NOTHING
  },
}

/** A call of a row. */
export interface Step {
  readonly name: string
  readonly call: Call
  readonly rate: number
}

const anyRate = fc.constantFrom(1, 5, 0, -1, 6, -(2 ** 53 - 1), 2 ** 53 - 1)

/** Some calls, one after the other. Half of them are plain ones. */
export const anySteps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc
    .record({ name: fc.oneof(fc.constant('limit'), fc.constantFrom(...Object.keys(CALLS))), rate: anyRate })
    .map((step) => ({ ...step, call: CALLS[step.name] as Call })),
  { minLength: 1, maxLength: 6 },
)

/** What an answer says is in numbers. */
export function checkNumbers(answer: { limit: number; remaining: number; reset: number }): void {
  const { limit, remaining, reset } = answer
  expect([limit, remaining, reset]).not.toContain(Number.NaN)
  expect(remaining).toBeGreaterThanOrEqual(0)
  expect(remaining).toBeLessThanOrEqual(limit)
}
