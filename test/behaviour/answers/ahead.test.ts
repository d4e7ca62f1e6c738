import { eq } from 'drizzle-orm'
import { resetOf, usage } from 'drizzle-ratelimit/reports'
import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, type RatelimitConfig, rateLimitEphemeral } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { allExamples } from '../../support/limits.ts'

// Rows whose time is ahead of the clock: the clock went back, or another one wrote them. Their time counts as
// now. So `reset` is that of the answer when they were written, and `retryAfter` counts from their time.

const database = useDatabase()
/** A month begins, so that the row of every algorithm has this time. */
const WRITTEN = Date.UTC(2026, 0, 1)
/** What is charged of ten; what is negative is given back. */
const uses = { part: [4], all: [10], debt: [14], nothing: [4, -10] }
const keys = Object.keys(uses)
const kinds = allExamples.map((example) => ({ ...example, plan: example.of(10, '1s') }))

describe.each(kinds)('$name', ({ plan: { limiter, rules }, name, lengths }) => {
  const steps = [1, Math.floor(rules.periodMs / 2), rules.periodMs]

  async function written(options: Partial<RatelimitConfig> = {}) {
    const clock = new TestClock(WRITTEN)
    const config = { db: database.db, limiter, prefix: name, clock: clock.now, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...config, ...options } as RatelimitConfig)
    for (const [key, rates] of Object.entries(uses)) {
      await ratelimit.resetUsedTokens(key)
      for (const rate of rates) await ratelimit.limit(key, { rate, force: true })
    }
    return { clock, ratelimit }
  }

  /** What every kind of look says. */
  async function looks({ clock, ratelimit }: Awaited<ReturnType<typeof written>>) {
    const listed = { prefix: name, durable: false, clock: clock.now }
    const reset = resetOf(rateLimitEphemeral, limiter, { clock: clock.now })
    const isOwn = eq(rateLimitEphemeral.prefix, name)
    return {
      one: await Promise.all(keys.map((key) => ratelimit.getRemaining(key))),
      many: await ratelimit.getRemainingAll(keys),
      nothing: await Promise.all(keys.map((key) => ratelimit.limit(key, { rate: 0 }))),
      inList: await limitAll(keys.map((key) => ({ ratelimit, key, rate: 0 }))),
      listed: await usage({ db: database.db, ...listed, limiter }),
      listedByPlan: await usage({ db: database.db, ...listed, limiterOf: () => limiter }),
      ofRows: await database.db
        .select({ reset })
        .from(rateLimitEphemeral)
        .where(isOwn)
        .orderBy(rateLimitEphemeral.key),
    }
  }

  test('a look gives the answer for the time of the row', async () => {
    const set = await written()
    const before = await looks(set)
    for (const back of steps) {
      set.clock.ms = WRITTEN - back
      // From there, the month of the row is not the next one, which is the last that an expression knows.
      const isUnknown = lengths === 'of the calendar' && back === rules.periodMs
      const ofRows = isUnknown ? keys.map(() => ({ reset: null })) : before.ofRows
      expect(await looks(set)).toEqual({ ...before, ofRows })
    }
  })

  test.each([
    { from: 'the database', inMemoryBlock: false },
    { from: 'memory', inMemoryBlock: true },
  ])('a denial by $from says when the call fits', async ({ inMemoryBlock }) => {
    const { clock, ratelimit } = await written({ inMemoryBlock })
    for (const back of steps) {
      clock.ms = WRITTEN - back
      const denied = await ratelimit.limit('all')
      expect(denied).toMatchObject({ success: false, remaining: 0 })
      expect(denied.reset - denied.retryAfter).toBe(WRITTEN)
      expect(await ratelimit.limit('all')).toEqual(denied)
      clock.ms = denied.reset - 1
      expect(await ratelimit.limit('all')).toMatchObject({ success: false, retryAfter: 1 })
    }
    clock.advance(1)
    expect(await ratelimit.limit('all')).toMatchObject({ success: true, retryAfter: 0 })
  })

  test('an allowed call gives the answer for the time of the row', async () => {
    const { ratelimit } = await written()
    const expected = await ratelimit.limit('part')
    expect(expected).toMatchObject({ success: true, remaining: 5 })
    for (const back of steps) {
      const { clock, ratelimit: again } = await written()
      clock.ms = WRITTEN - back
      expect(await again.limit('part')).toEqual(expected)
    }
  })

  test('a row that is further ahead than its period counts as no row', async () => {
    const { clock, ratelimit } = await written()
    clock.ms = WRITTEN - rules.periodMs - 1
    for (const key of keys) {
      expect(await ratelimit.getRemaining(key)).toEqual(await ratelimit.getRemaining('new'))
    }
  })
})
