import { sql } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, rateLimitEphemeral } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { kinds, type QuotaUnderTest, quotaOn, TEN, UNDO } from '../../support/ten.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const YEARS_MS = 50 * 365 * 86_400_000

async function granted(amount: number): Promise<QuotaUnderTest> {
  const made = quotaOn(database, Ratelimit.balance())
  await made.quota.grant('key', amount)
  return made
}

test('a balance without a grant is empty, and a denial writes nothing', async () => {
  const { clock, quota, rows } = quotaOn(database, Ratelimit.balance())
  const denied = { success: false, limit: 0, remaining: 0, reset: Infinity, retryAfter: Infinity }
  expect(await quota.limit('key')).toEqual(denied)
  expect(await quota.getRemaining('key')).toEqual({ limit: 0, remaining: 0, reset: clock.ms, used: 0 })
  expect(await rows()).toEqual([])
})

test('a grant adds, a call takes, and nothing comes back by itself', async () => {
  const { clock, quota } = await granted(10)
  expect(await quota.limit('key', { rate: 4 })).toEqual({
    ...{ success: true, limit: 10, remaining: 6, reset: Infinity, retryAfter: 0 },
  })
  expect(await quota.grant('key', 5)).toEqual({ limit: 15, remaining: 11, reset: Infinity, used: 4 })
  clock.advance(YEARS_MS)
  expect(await quota.limit('key', { rate: 12 })).toEqual({
    ...{ success: false, limit: 15, remaining: 11, reset: Infinity, retryAfter: Infinity },
  })
  expect(await quota.limit('key', { rate: 11 })).toMatchObject({ success: true, remaining: 0 })
})

test('grants to several keys at once add to each', async () => {
  const { quota } = quotaOn(database, Ratelimit.balance())
  const keys = ['one', 'two', 'three']
  for (const granted of [1, 2]) {
    const answers = await Promise.all(keys.map((key) => quota.grant(key, 1)))
    expect(answers.map(({ remaining }) => remaining)).toEqual([granted, granted, granted])
  }
})

test('rows never expire, and no clock takes credits away', async () => {
  const { clock, quota } = await granted(10)
  clock.advance(YEARS_MS)
  expect(await quota.cleanup()).toBe(0)
  clock.advance(-2 * YEARS_MS)
  expect(await quota.getRemaining('key')).toMatchObject({ remaining: 10, reset: clock.ms })
  await quota.limit('key')
  expect(await quota.getRemaining('key')).toMatchObject({ remaining: 9 })
})

test('a refund lowers what is used', async () => {
  const { quota } = await granted(10)
  await quota.limit('key', { rate: 7 })
  expect(await quota.limit('key', { rate: -5 })).toMatchObject({ remaining: 8 })
  expect(await quota.limit('key', { rate: -5 })).toMatchObject({ remaining: 10 })
})

test('force goes into debt, which the next grant pays', async () => {
  const { quota } = await granted(10)
  expect(await quota.limit('key', { rate: 25, force: true })).toMatchObject({ success: true, remaining: 0 })
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 10, used: 25, remaining: 0 })
  expect(await quota.limit('key')).toMatchObject({ success: false, retryAfter: Infinity })
  expect(await quota.grant('key', 20)).toMatchObject({ limit: 30, remaining: 5 })
})

test('atLeast and reserve work on a balance', async () => {
  const { quota } = await granted(10)
  const reserved = await quota.reserve('key', { rate: 40, atLeast: 1 })
  if (!reserved.success) throw new Error('denied')
  expect(reserved.granted).toBe(10)
  await reserved.commit(3)
  expect(await quota.getRemaining('key')).toMatchObject({ remaining: 7, used: 3 })
})

test('grants at once are all added, and share a statement', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, Ratelimit.balance(), { db })
  await quota.grant('key', 1)
  statements.length = 0
  const grants = await Promise.all(Array.from({ length: 5 }, () => quota.grant('key', 10)))
  expect(grants.map(({ remaining }) => remaining)).toEqual([11, 21, 31, 41, 51])
  expect(statements).toHaveLength(1)
})

test('a rollback undoes a grant', async () => {
  const { quota, rows } = quotaOn(database, Ratelimit.balance())
  const undone = database.db.transaction(async (tx) => {
    expect(await quota.grant('key', 10, { tx })).toMatchObject({ remaining: 10 })
    throw UNDO
  })
  await expect(undone).rejects.toBe(UNDO)
  expect(await rows()).toEqual([])
})

test('limitAll takes from it, or leaves no row', async () => {
  const { quota, rows } = quotaOn(database, Ratelimit.balance())
  expect(await limitAll([{ ratelimit: quota, key: 'key' }])).toMatchObject({
    success: false,
    retryAfter: Infinity,
  })
  expect(await rows()).toEqual([])
  await quota.grant('key', 3)
  const both = [{ ratelimit: quota, key: 'key', rate: 2 }]
  expect(await limitAll(both)).toMatchObject({ success: true, results: [{ remaining: 1 }] })
})

test('no denial is remembered: another process may grant', async () => {
  const { config, quota } = quotaOn(database, Ratelimit.balance(), { inMemoryBlock: true })
  expect(await quota.limit('key')).toMatchObject({ success: false })
  expect(await quota.limit('key')).toMatchObject({ success: false })
  await database.rows(
    `insert into rate_limit_ephemeral (prefix, key, count, prev_count, tokens, last_refill, expires_at)
      values ($1, 'key', 0, 5, 0, now(), now())`,
    [config.prefix],
  )
  expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 4 })
})

const MOST = Number.MAX_SAFE_INTEGER

test.each([
  ['0', '9223372036854775807', { limit: MOST, used: 0, remaining: MOST }],
  ['5', '9223372036854775807', { limit: MOST, used: 5, remaining: MOST - 5 }],
  ['9007199254740993', '9223372036854774784', { limit: MOST, used: MOST, remaining: 0 }],
  ['9223372036854775807', '-9223372036854775808', { limit: 0, used: MOST, remaining: 0 }],
  ['-9223372036854775808', '10', { limit: 10, used: 0, remaining: 10 }],
])('a row from other software is read within 2^53 - 1: %s of %s', async (used, granted, expected) => {
  const calls: readonly ((quota: Ratelimit) => Promise<object>)[] = [
    (quota) => quota.getRemaining('key'),
    (quota) => quota.limit('key', { rate: 0 }),
    (quota) => quota.limit('key'),
    (quota) => quota.limit('key', { rate: -1 }),
    (quota) => quota.limit('key', { rate: MOST, force: true }),
    (quota) => quota.grant('key', 5),
    (quota) => quota.grant('key', MOST),
  ]
  for (const call of calls) {
    const { config, quota } = quotaOn(database, Ratelimit.balance())
    await database.rows(
      `insert into rate_limit_ephemeral (prefix, key, count, prev_count, tokens, last_refill, expires_at)
        values ($1, 'key', $2, $3, 'NaN', now(), now())`,
      [config.prefix, used, granted],
    )
    expect(await quota.getRemaining('key')).toMatchObject(expected)
    await call(quota).catch((error) => expect(error).toMatchObject({ code: 'COUNT_OVERFLOW' }))
    const left = await quota.getRemaining('key')
    expect(left.limit).toBeLessThanOrEqual(MOST)
    expect(left.remaining).toBe(Math.max(left.limit - left.used, 0))
  }
})

test('a grant that takes the sum of grants to 2^53 is refused', async () => {
  const { quota } = await granted(10)
  await quota.limit('key', { rate: 4 })
  await expect(quota.grant('key', MOST)).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 10, used: 4 })
  expect(await quota.grant('key', MOST - 10)).toMatchObject({ limit: MOST, used: 4, remaining: MOST - 4 })
  const grants = await Promise.allSettled([quota.grant('key', 1), quota.grant('key', 1)])
  expect(grants.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
})

test('lists and queries of your own read it', async () => {
  const { prefix, quota, clock } = await granted(10)
  await quota.limit('key', { rate: 4 })
  const limiter = Ratelimit.balance()
  expect(await usage(quota)).toMatchObject([
    { key: 'key', limit: 10, remaining: 6, used: 4, reset: Infinity },
  ])
  expect(await quota.getRemainingAll(['key', 'none'])).toMatchObject([{ remaining: 6 }, { remaining: 0 }])
  const [used, remaining, reset] = [usedOf, remainingOf, resetOf].map((read) =>
    read(rateLimitEphemeral, limiter, { clock: clock.now }),
  )
  const query = sql`select ${used} as used, ${remaining} as remaining, ${reset} as reset from ${rateLimitEphemeral}
    where ${rateLimitEphemeral.prefix} = ${prefix}`
  const [row] = await database.rows(new PgDialect().sqlToQuery(query.inlineParams()).sql)
  expect([row?.['used'], row?.['remaining'], Number(row?.['reset'])].map(Number)).toEqual([4, 6, Infinity])
})

test('a reset is refused, and so is a grant to another limit, before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, Ratelimit.balance(), { db })
  const other = quotaOn(database, TEN['fixed window'], { db }).quota
  const unlimited = quotaOn(database, Ratelimit.unlimited(), { db }).quota
  const invalid = { code: 'INVALID_OPTION' }
  await expect(quota.resetUsedTokens('key')).rejects.toMatchObject(invalid)
  await expect(other.grant('key', 5)).rejects.toMatchObject(invalid)
  await expect(unlimited.grant('key', 5)).rejects.toMatchObject(invalid)
  const missing = undefined as unknown as number
  for (const amount of [0, -5, 0.5, Number.NaN, Number.POSITIVE_INFINITY, missing]) {
    await expect(quota.grant('key', amount)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  }
  expect(statements).toEqual([])
})

describe('a limiter of another algorithm', () => {
  const others = kinds.map(({ name, limiter }) => [name, limiter] as const)
  const refusal = { code: 'INVALID_LIMIT' }

  test.each(others)('is refused before any SQL, and the credits stay: %s', async (_, limiter) => {
    const { db, statements } = watch(database.db)
    const { quota } = quotaOn(database, Ratelimit.balance(), { db })
    await quota.grant('key', 10)
    statements.length = 0
    const one = { ratelimit: quota, key: 'key', limiter }
    for (const refuse of [
      () => quota.limit('key', { limiter }),
      () => quota.limit('key', { limiter, rate: -1 }),
      () => quota.limit('key', { limiter, force: true }),
      () => quota.reserve('key', { limiter }),
      () => quota.getRemaining('key', { limiter }),
      () => quota.getRemainingAll(['key'], { limiter }),
      () => quota.blockUntilReady('key', 0, { limiter }),
      () => quota.resetUsedTokens('key', { limiter }),
      () => quota.grant('key', 5, { limiter }),
      () => limitAll([one]),
      () => reserveAll([one]),
      () => spend([one], { rate: 1 }),
    ]) {
      await expect(refuse()).rejects.toMatchObject(refusal)
    }
    expect(statements).toEqual([])
    expect(await quota.getRemaining('key')).toMatchObject({ remaining: 10 })
  })

  test.each([...others, ['unlimited', Ratelimit.unlimited()] as const])(
    'refuses a balance for a call: %s',
    async (_, own) => {
      const { quota } = quotaOn(database, own)
      const limiter = Ratelimit.balance()
      await expect(quota.limit('key', { limiter })).rejects.toMatchObject(refusal)
      await expect(quota.grant('key', 5, { limiter })).rejects.toMatchObject(refusal)
    },
  )

  test('cannot settle a reservation of credits', async () => {
    const { quota } = await granted(10)
    const reserved = await quota.reserve('key', { rate: 4 })
    if (!reserved.success) throw new Error('denied')
    const { 'fixed window': limiter } = TEN
    await expect(reserved.commit(6, { limiter })).rejects.toMatchObject(refusal)
    expect(await reserved.commit(6)).toMatchObject({ remaining: 4 })
  })

  test('without a limit is a plan that leaves the credits alone', async () => {
    const { quota } = await granted(10)
    const limiter = Ratelimit.unlimited()
    const reserved = await quota.reserve('key', { rate: 40, limiter })
    if (!reserved.success) throw new Error('denied')
    await expect(quota.resetUsedTokens('key', { limiter })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0, remaining: 10 })
    // The plan has ended in between.
    expect(await reserved.commit(43, { limiter: Ratelimit.balance() })).toMatchObject({ remaining: 7 })
  })
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
    const { clock, quota } = quotaOn(database, Ratelimit.balance())
    let [given, used] = [0, 0]
    for (const each of steps) {
      const left = given - used
      if (each.op === 'wait') clock.advance(each.amount * 1e9)
      else if (each.op === 'grant') {
        given += each.amount
        await quota.grant('key', each.amount)
      } else if (each.op === 'refund') {
        used = Math.max(used - each.amount, 0)
        await quota.limit('key', { rate: -each.amount })
      } else {
        const force = each.op === 'force'
        const atLeast = each.op === 'part' ? Math.ceil(each.amount / 2) : undefined
        const { success } = await quota.limit('key', { rate: each.amount, force, atLeast })
        const taken = atLeast === undefined ? each.amount : Math.min(each.amount, left)
        expect(success).toBe(force || (taken >= (atLeast ?? 0) && taken <= left))
        if (success) used += taken
      }
      const reset = used > 0 ? Infinity : clock.ms
      const remaining = Math.max(given - used, 0)
      expect(await quota.getRemaining('key')).toEqual({ limit: given, remaining, reset, used })
    }
  })
  await fc.assert(property, runs(60))
})
