import { block, blocks, unblock } from 'drizzle-ratelimit/lockout'
import { beforeEach, describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'

// Keys of dated credits whose grants are rows of their own, and whose blocks are one more.

const database = useDatabase()
const HOUR = 3_600_000
let prefixes = 0
let clock: TestClock
let credits: Credits<true>

beforeEach(() => {
  clock = new TestClock()
  credits = creditsWith([blocks()])
})

function common() {
  return { db: database.db, prefix: `blocked credits ${prefixes++}`, clock: clock.now, cleanupProbability: 0 }
}

function creditsWith(use: readonly ReturnType<typeof blocks>[]): Credits<true> {
  return new Credits({ ...common(), durable: false, dated: true, use })
}

describe('while a key with 10 credits is blocked for an hour', () => {
  const DENIED = { success: false, retryAfter: HOUR }
  beforeEach(async () => {
    await credits.grant('org', 6, { id: 'a' })
    await credits.grant('org', 4, { id: 'b' })
    await block(credits, 'org', '1h')
  })

  test.each<[string, () => Promise<unknown>]>([
    ['limit', () => credits.limit('org', { rate: 7 })],
    ['limit with atLeast', () => credits.limit('org', { rate: 30, atLeast: 1 })],
    ['limit with once', () => credits.limit('org', { once: { id: 'once', for: '1d' } })],
    ['limit in a transaction', () => database.db.transaction((tx) => credits.limit('org', { tx }))],
    ['reserve', () => credits.reserve('org')],
    ['reserve with a name', () => credits.reserve('org', { rate: 7, id: 'job', expires: '1d' })],
    ['blockUntilReady', () => credits.blockUntilReady('org', 0)],
    ['limitAll', () => limitAll([{ ratelimit: credits, key: 'org', rate: 7 }])],
    ['reserveAll', () => reserveAll([{ ratelimit: credits, key: 'org' }], { id: 'all', expires: '1d' })],
    ['spend', () => spend([{ ratelimit: credits, key: 'org' }], { rate: 7 })],
  ])('%s is denied, and writes nothing', async (_, call) => {
    const rows = () =>
      database.rows('select * from rate_limit_ephemeral where strpos(prefix, $1) > 0 order by 1, 2', [
        credits.prefix,
      ])
    const before = await rows()
    expect(await call()).toMatchObject(DENIED)
    expect(await rows()).toEqual(before)
    clock.advance(HOUR - 1)
    expect(await call()).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await call()).toMatchObject({ success: true })
  })

  test('answers say until when', async () => {
    const until = clock.ms + HOUR
    const shown = { limit: 10, remaining: 0, blockedUntil: until }
    expect(await credits.limit('org')).toMatchObject({ ...shown, reset: until })
    expect(await credits.getRemaining('org')).toMatchObject({ ...shown, used: 0 })
    expect(await credits.getRemainingAll(['eve', 'org', 'org'])).toMatchObject([{ limit: 0 }, shown, shown])
    expect(await spend([{ ratelimit: credits, key: 'org' }], { rate: 7 })).toMatchObject({
      results: [{ ...shown, success: false }],
    })
    expect(await credits.grants('org')).toMatchObject([{ left: 6 }, { left: 4 }])
  })

  test('a call with more than there is never succeeds', async () => {
    const answer = await credits.limit('org', { rate: 11 })
    expect(answer).toMatchObject({
      ...{ success: false, retryAfter: Number.POSITIVE_INFINITY, blockedUntil: clock.ms + HOUR },
    })
  })

  test('what is never denied passes: looks, grants, refunds, forced charges and settlements', async () => {
    await unblock(credits, 'org')
    const reserved = await credits.reserve('org', { rate: 5 })
    await credits.reserve('org', { rate: 2, id: 'job', expires: '1d' })
    await block(credits, 'org', '1h')
    if (reserved.success) await reserved.commit(6)
    await credits.settle({ key: 'org', id: 'job' }, 1)
    await credits.limit('org', { rate: 2, force: true })
    await credits.limit('org', { rate: -1 })
    await credits.grant('org', 1, { id: 'c' })
    expect(await credits.limit('org', { rate: 0 })).toMatchObject({ success: true, remaining: 3 })
    expect(await credits.getRemaining('org')).toMatchObject({ used: 8, limit: 11, remaining: 0 })
  })

  test('an id that was used before is repeated', async () => {
    await unblock(credits, 'org')
    const once = { id: 'event', for: '1d' } as const
    await credits.limit('org', { rate: 3, once })
    await block(credits, 'org', '1h')
    expect(await credits.limit('org', { rate: 3, once })).toMatchObject({ success: true, repeated: true })
    expect(await credits.getRemaining('org')).toMatchObject({ used: 3 })
  })

  test('a list charges no other limit, and one block denies all shares of a cost', async () => {
    const month = new Ratelimit({ ...common(), limiter: Ratelimit.fixedWindow(5, '1d') })
    const both = [
      { ratelimit: month, key: 'org' },
      { ratelimit: credits, key: 'org' },
    ]
    expect(await limitAll(both)).toMatchObject({ ...DENIED, results: [{ success: true }, DENIED] })
    expect(await spend(both, { rate: 2 })).toMatchObject({ ...DENIED, granted: [0, 0] })
    expect(await spend(both, { rate: 8 })).toMatchObject({ ...DENIED, granted: [0, 0] })
    expect(await month.getRemaining('org')).toMatchObject({ used: 0 })
    await unblock(credits, 'org')
    expect(await spend(both, { rate: 8 })).toMatchObject({ success: true, granted: [5, 3] })
    expect(await limitAll([{ ratelimit: credits, key: 'org' }])).toMatchObject({ success: true })
  })
})

test('credits that end before the block does are not promised after it', async () => {
  await credits.grant('org', 6, { id: 'promo', expires: '1h' })
  await credits.grant('org', 4, { id: 'bought' })
  await block(credits, 'org', '2h')
  const never = { success: false, retryAfter: Number.POSITIVE_INFINITY }
  const then = { success: false, retryAfter: 2 * HOUR }
  expect(await credits.limit('org', { rate: 5 })).toMatchObject(never)
  expect(await credits.limit('org', { rate: 4 })).toMatchObject(then)
  expect(await credits.limit('org', { rate: 9, atLeast: 4 })).toMatchObject(then)
  expect(await credits.limit('org', { rate: 9, atLeast: 5 })).toMatchObject(never)
  clock.advance(2 * HOUR)
  expect(await credits.limit('org', { rate: 9, atLeast: 4 })).toMatchObject({ success: true, granted: 4 })
})

test.each([1, 60])(
  'a shared cost is promised what lasts of %d grants that would pay first',
  async (promos) => {
    const month = new Ratelimit({ ...common(), limiter: Ratelimit.fixedWindow(5, '30d'), use: [blocks()] })
    const plain = creditsWith([])
    for (const each of [credits, plain]) {
      for (let one = 0; one < promos; one++) await each.grant('org', 10, { id: `${one}`, expires: '1h' })
      await each.grant('org', 8, { id: 'bought' })
    }
    await block(credits, 'org', '2h')
    await block(month, 'org', '2h')
    const then = { success: false, retryAfter: 2 * HOUR }
    const never = { success: false, retryAfter: Number.POSITIVE_INFINITY }
    expect(await spend([{ ratelimit: credits, key: 'org' }], { rate: 8 })).toMatchObject(then)
    expect(await spend([{ ratelimit: credits, key: 'org' }], { rate: 9 })).toMatchObject(never)
    const both = [month, plain].map((ratelimit) => ({ ratelimit, key: 'org' }))
    expect(await spend(both, { rate: 10 })).toMatchObject(then)
    expect(await spend(both, { rate: 14 })).toMatchObject(never)
    clock.advance(2 * HOUR)
    expect(await spend(both, { rate: 10 })).toMatchObject({ success: true, granted: [5, 5] })
  },
)

describe.each([1, 60])('next to a limit that is used up, with %d grants that end', (promos) => {
  test('a list is promised what lasts, if less than the rate is enough', async () => {
    const plain = creditsWith([])
    const hourly = new Ratelimit({ ...common(), limiter: Ratelimit.fixedWindow(1, '2h') })
    await hourly.limit('org')
    for (let each = 0; each < promos; each++) await plain.grant('org', 60, { id: `${each}`, expires: '1h' })
    await plain.grant('org', 4, { id: 'bought' })
    const both = (atLeast: number) => [
      { ratelimit: hourly, key: 'org' },
      { ratelimit: plain, key: 'org', rate: 50, atLeast },
    ]
    expect(await limitAll(both(5))).toMatchObject({ success: false, retryAfter: Number.POSITIVE_INFINITY })
    expect(await limitAll(both(4))).toMatchObject({ success: false, retryAfter: 2 * HOUR })
    clock.advance(2 * HOUR)
    expect(await limitAll(both(4))).toMatchObject({ success: true })
  })
})

test('a block joins a transaction', async () => {
  await credits.grant('org', 6, { id: 'a' })
  await database.db
    .transaction(async (tx) => {
      expect(await block(credits, 'org', '1h', { tx })).toMatchObject({ limit: 6, remaining: 0 })
      expect(await credits.limit('org', { tx })).toMatchObject({ success: false })
      tx.rollback()
    })
    .catch(() => {})
  expect(await credits.limit('org')).toMatchObject({ success: true })
})

test('its row is swept when it is over', async () => {
  await credits.grant('org', 6, { id: 'a' })
  await block(credits, 'org', '1h')
  clock.advance(2 * HOUR - 1)
  await credits.cleanup()
  expect(await credits.getRemaining('org')).toMatchObject({ remaining: 6 })
})
