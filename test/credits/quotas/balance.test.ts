import { sql } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { citus } from 'drizzle-ratelimit/citus'
import { dashboard } from 'drizzle-ratelimit/dashboard'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, RatelimitError, rateLimitDurable } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { type CreditsUnderTest, creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const YEARS_MS = 50 * 365 * 86_400_000

async function granted(amount: number): Promise<CreditsUnderTest> {
  const made = creditsOn(database)
  await made.credits.grant('key', amount)
  return made
}

test('a balance without a grant is empty, and a denial writes nothing', async () => {
  const { clock, credits, rows } = creditsOn(database)
  const denied = { success: false, limit: 0, remaining: 0, reset: Infinity, retryAfter: Infinity }
  expect(await credits.limit('key')).toEqual(denied)
  expect(await credits.getRemaining('key')).toEqual({ limit: 0, remaining: 0, reset: clock.ms, used: 0 })
  expect(await rows()).toEqual([])
})

test('a grant adds, a call takes, and nothing comes back by itself', async () => {
  const { clock, credits } = await granted(10)
  expect(await credits.limit('key', { rate: 4 })).toEqual({
    ...{ success: true, limit: 10, remaining: 6, reset: Infinity, retryAfter: 0 },
  })
  expect(await credits.grant('key', 5)).toEqual({ limit: 15, remaining: 11, reset: Infinity, used: 4 })
  clock.advance(YEARS_MS)
  expect(await credits.limit('key', { rate: 12 })).toEqual({
    ...{ success: false, limit: 15, remaining: 11, reset: Infinity, retryAfter: Infinity },
  })
  expect(await credits.limit('key', { rate: 11 })).toMatchObject({ success: true, remaining: 0 })
})

test('grants to several keys at once add to each', async () => {
  const { credits } = creditsOn(database)
  const keys = ['one', 'two', 'three']
  for (const granted of [1, 2]) {
    const answers = await Promise.all(keys.map((key) => credits.grant(key, 1)))
    expect(answers.map(({ remaining }) => remaining)).toEqual([granted, granted, granted])
  }
})

test('rows never expire, and no clock takes credits away', async () => {
  const { clock, credits } = await granted(10)
  clock.advance(YEARS_MS)
  expect(await credits.cleanup()).toBe(0)
  clock.advance(-2 * YEARS_MS)
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 10, reset: clock.ms })
  await credits.limit('key')
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 9 })
})

test('a refund lowers what is used', async () => {
  const { credits } = await granted(10)
  await credits.limit('key', { rate: 7 })
  expect(await credits.limit('key', { rate: -5 })).toMatchObject({ remaining: 8 })
  expect(await credits.limit('key', { rate: -5 })).toMatchObject({ remaining: 10 })
})

test('force goes into debt, which the next grant pays', async () => {
  const { credits } = await granted(10)
  expect(await credits.limit('key', { rate: 25, force: true })).toMatchObject({ success: true, remaining: 0 })
  expect(await credits.getRemaining('key')).toMatchObject({ limit: 10, used: 25, remaining: 0 })
  expect(await credits.limit('key')).toMatchObject({ success: false, retryAfter: Infinity })
  expect(await credits.grant('key', 20)).toMatchObject({ limit: 30, remaining: 5 })
})

test('atLeast and reserve work on a balance', async () => {
  const { credits } = await granted(10)
  const reserved = allowed(await credits.reserve('key', { rate: 40, atLeast: 1 }))
  expect(reserved.granted).toBe(10)
  await reserved.commit(3)
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 7, used: 3 })
})

test('grants at once are all added, and share a statement', async () => {
  const { db, statements } = watch(database.db)
  const { credits } = creditsOn(database, { db })
  await credits.grant('key', 1)
  statements.length = 0
  const grants = await Promise.all(Array.from({ length: 5 }, () => credits.grant('key', 10)))
  expect(grants.map(({ remaining }) => remaining)).toEqual([11, 21, 31, 41, 51])
  expect(statements).toHaveLength(1)
})

test('a rollback undoes a grant', async () => {
  const { credits, rows } = creditsOn(database)
  await undone(database.db, async (tx) => {
    expect(await credits.grant('key', 10, { tx })).toMatchObject({ remaining: 10 })
  })
  expect(await rows()).toEqual([])
})

test('limitAll takes from it, or leaves no row', async () => {
  const { credits, rows } = creditsOn(database)
  expect(await limitAll([{ ratelimit: credits, key: 'key' }])).toMatchObject({
    success: false,
    retryAfter: Infinity,
  })
  expect(await rows()).toEqual([])
  await credits.grant('key', 3)
  const both = [{ ratelimit: credits, key: 'key', rate: 2 }]
  expect(await limitAll(both)).toMatchObject({ success: true, results: [{ remaining: 1 }] })
})

const MOST = Number.MAX_SAFE_INTEGER

test.each([
  ['0', '9223372036854775807', { limit: MOST, used: 0, remaining: MOST }],
  ['5', '9223372036854775807', { limit: MOST, used: 5, remaining: MOST - 5 }],
  ['9007199254740993', '9223372036854774784', { limit: MOST, used: MOST, remaining: 0 }],
  ['9223372036854775807', '-9223372036854775808', { limit: 0, used: MOST, remaining: 0 }],
  ['-9223372036854775808', '10', { limit: 10, used: 0, remaining: 10 }],
])('a row from other software is read within 2^53 - 1: %s of %s', async (used, granted, expected) => {
  const calls: readonly ((credits: Credits) => Promise<object>)[] = [
    (credits) => credits.getRemaining('key'),
    (credits) => credits.limit('key', { rate: 0 }),
    (credits) => credits.limit('key'),
    (credits) => credits.limit('key', { rate: -1 }),
    (credits) => credits.limit('key', { rate: MOST, force: true }),
    (credits) => credits.grant('key', 5),
    (credits) => credits.grant('key', MOST),
  ]
  for (const call of calls) {
    const { config, credits } = creditsOn(database)
    await database.rows(
      `insert into rate_limit_durable (prefix, key, count, prev_count, tokens, last_refill, expires_at)
        values ($1, 'key', $2, $3, 'NaN', now(), now())`,
      [config.prefix, used, granted],
    )
    expect(await credits.getRemaining('key')).toMatchObject(expected)
    await call(credits).catch((error) => expect(error).toMatchObject({ code: 'COUNT_OVERFLOW' }))
    const left = await credits.getRemaining('key')
    expect(left.limit).toBeLessThanOrEqual(MOST)
    expect(left.remaining).toBe(Math.max(left.limit - left.used, 0))
  }
})

test('a grant that takes the sum of grants to 2^53 is refused', async () => {
  const { credits } = await granted(10)
  await credits.limit('key', { rate: 4 })
  await expect(credits.grant('key', MOST)).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
  expect(await credits.getRemaining('key')).toMatchObject({ limit: 10, used: 4 })
  expect(await credits.grant('key', MOST - 10)).toMatchObject({ limit: MOST, used: 4, remaining: MOST - 4 })
  const grants = await Promise.allSettled([credits.grant('key', 1), credits.grant('key', 1)])
  expect(grants.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
})

test('lists and queries of your own read it', async () => {
  const { prefix, credits, clock } = await granted(10)
  await credits.limit('key', { rate: 4 })
  expect(await usage(credits)).toMatchObject([
    { key: 'key', limit: 10, remaining: 6, used: 4, reset: Infinity },
  ])
  expect(await credits.getRemainingAll(['key', 'none'])).toMatchObject([{ remaining: 6 }, { remaining: 0 }])
  const [used, remaining, reset] = [usedOf, remainingOf, resetOf].map((read) =>
    read(rateLimitDurable, credits),
  )
  const query = sql`select ${used} as used, ${remaining} as remaining, ${reset} as reset from ${rateLimitDurable}
    where ${rateLimitDurable.prefix} = ${prefix}`
  const rowNow = async () => {
    const [row] = await database.rows(new PgDialect().sqlToQuery(query.inlineParams()).sql)
    return [row?.['used'], row?.['remaining'], row?.['reset']].map(Number)
  }
  expect(await rowNow()).toEqual([4, 6, Infinity])
  await credits.limit('key', { rate: -4 })
  // Unless a clock is given, it is that of the credits.
  expect(await rowNow()).toEqual([0, 10, clock.ms])
})

test('a query of your own is one for the store of the credits', () => {
  const { db } = database
  const text = (of: Credits, options = {}) =>
    new PgDialect().sqlToQuery(usedOf(rateLimitDurable, of, options)).sql
  const plain = creditsOn(database, { db }).credits
  const distributed = creditsOn(database, { db, use: [citus()] }).credits
  expect(text(distributed)).toBe(text(plain, { use: [citus()] }))
})

test('a plan for each key of credits is refused at once', async () => {
  const { db, statements } = watch(database.db)
  const { credits } = creditsOn(database, { db })
  const limiterOf = () => TEN['fixed window']
  await expect(usage(credits as never, { limiterOf })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const page = { authorize: () => undefined, secret: 'at least 16 characters' }
  const planned = { ratelimit: credits as never, limiterOf }
  expect(() => dashboard({ ...page, limiters: { planned } })).toThrow('Credits take no limiter')
  expect(statements).toEqual([])
})

test('an amount that is no whole number above 0 is refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { credits } = creditsOn(database, { db })
  const missing = undefined as unknown as number
  for (const amount of [0, -5, 0.5, Number.NaN, Number.POSITIVE_INFINITY, missing]) {
    await expect(credits.grant('key', amount)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  }
  expect(statements).toEqual([])
})

test('a key has one grant, without an id and an end', async () => {
  const { credits } = creditsOn(database)
  expect(await credits.grants('key')).toEqual([])
  await credits.limit('key', { rate: 3, force: true })
  expect(await credits.grants('key')).toEqual([])
  await credits.grant('key', 10)
  await credits.grant('key', 5)
  expect(await credits.grants('key')).toEqual([{ amount: 15, used: 3, left: 12 }])
  await database.db.transaction(async (tx) => {
    await credits.limit('key', { rate: 2, tx })
    expect(await credits.grants('key', { tx })).toEqual([{ amount: 15, used: 5, left: 10 }])
  })
})

test('blockUntilReady returns a denial at once, because only a grant could end it', async () => {
  const { credits } = await granted(10)
  const denied = { success: false, retryAfter: Infinity }
  expect(await credits.blockUntilReady('key', '1d', { rate: 11 })).toMatchObject(denied)
  expect(await credits.blockUntilReady('key', '1d', { rate: 11, atLeast: 4 })).toMatchObject({ granted: 10 })
  const reason = new RatelimitError('LEASE_ENDED', 'gone')
  const ended = credits.blockUntilReady('key', '1d', { signal: AbortSignal.abort(reason) })
  await expect(ended).rejects.toBe(reason)
})

test.each([false, true] as false[])('blockUntilReady speaks of itself: dated %s', async (dated) => {
  const credits = new Credits({ db: database.db, prefix: 'messages', dated })
  await expect(credits.blockUntilReady('key', -1)).rejects.toThrow(/^The timeout must be/)
  await expect(credits.blockUntilReady('key', 0, { signal: 1 as never })).rejects.toThrow(/^signal must be/)
  await database.db.transaction(async (tx) => {
    const joined = new Credits({ db: tx, prefix: 'messages', dated })
    await expect(joined.blockUntilReady('key', 0)).rejects.toThrow(/^blockUntilReady cannot be combined/)
  })
})

describe('a limiter', () => {
  test('is refused before any SQL', async () => {
    const { db, statements } = watch(database.db)
    const { credits } = creditsOn(database, { db })
    await credits.grant('key', 10)
    statements.length = 0
    const plan: object = { limiter: TEN['fixed window'] }
    const one = { ratelimit: credits, key: 'key', ...plan }
    for (const refuse of [
      () => credits.limit('key', plan),
      () => credits.limit('key', { ...plan, rate: -1 }),
      () => credits.limit('key', { ...plan, force: true }),
      () => credits.reserve('key', plan),
      () => credits.getRemaining('key', plan),
      () => credits.getRemainingAll(['key'], plan),
      () => credits.blockUntilReady('key', 0, plan),
      () => credits.grants('key', plan),
      () => credits.grant('key', 5, plan),
      () => limitAll([one]),
      () => reserveAll([one]),
      () => spend([one], { rate: 1 }),
    ]) {
      await expect(refuse()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    expect(statements).toEqual([])
    expect(await credits.getRemaining('key')).toMatchObject({ remaining: 10 })
  })
})

test('what only dated credits have says so', async () => {
  const { config, credits } = creditsOn(database)
  const needs = { code: 'INVALID_OPTION', message: expect.stringMatching(/needs dated: true\.$/) }
  const untyped = credits as unknown as Credits<true>
  await expect(untyped.voidGrant('key', 'a')).rejects.toMatchObject(needs)
  expect(() => new Credits({ ...config, keep: '1d' } as never)).toThrow(expect.objectContaining(needs))
})

test('any sequence of calls keeps the books', async () => {
  const amount = fc.integer({ min: 1, max: 100 })
  const step = fc.oneof(
    fc.record({ op: fc.constant('grant' as const), amount }),
    fc.record({ op: fc.constant('limit' as const), amount }),
    fc.record({ op: fc.constant('part' as const), amount }),
    fc.record({ op: fc.constant('force' as const), amount }),
    fc.record({ op: fc.constant('refund' as const), amount }),
    fc.record({ op: fc.constant('wait' as const), amount }),
  )
  const property = fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), async (steps) => {
    const { clock, credits } = creditsOn(database)
    let [given, used] = [0, 0]
    for (const each of steps) {
      const left = given - used
      if (each.op === 'wait') clock.advance(each.amount * 1e9)
      else if (each.op === 'grant') {
        given += each.amount
        await credits.grant('key', each.amount)
      } else if (each.op === 'refund') {
        used = Math.max(used - each.amount, 0)
        await credits.limit('key', { rate: -each.amount })
      } else {
        const force = each.op === 'force'
        const atLeast = each.op === 'part' ? Math.ceil(each.amount / 2) : undefined
        const { success } = await credits.limit('key', { rate: each.amount, force, atLeast })
        const taken = atLeast === undefined ? each.amount : Math.min(each.amount, left)
        expect(success).toBe(force || (taken >= (atLeast ?? 0) && taken <= left))
        if (success) used += taken
      }
      const reset = used > 0 ? Infinity : clock.ms
      const remaining = Math.max(given - used, 0)
      expect(await credits.getRemaining('key')).toEqual({ limit: given, remaining, reset, used })
    }
  })
  await fc.assert(property, runs(60))
})
