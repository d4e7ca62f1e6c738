import { describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// `limitAll` with credits that end: the other limits and the grants, or nothing.

const database = useDatabase()

let prefixes = 0

function speedAndCredits(limiter: Limiter = Ratelimit.fixedWindow(2, '1h'), options = {}) {
  const { quota: speed, clock } = quotaOn(database, limiter)
  const credits = new Credits({
    ...{ db: database.db, dated: true, prefix: `all ${++prefixes}`, durable: true },
    ...{ clock: clock.now, cleanupProbability: 0, ...options },
  })
  const limit = (rate: number, more = {}, options = {}) =>
    limitAll(
      [
        { ratelimit: speed, key: 'key' },
        { ratelimit: credits, key: 'key', rate, ...more },
      ],
      options,
    )
  /** What the window has used, and what the grants have left. */
  const books = async () => {
    const left = (await credits.grants('key')).map(({ id, left }) => [id, left] as const)
    return { used: (await speed.getRemaining('key')).used, ...Object.fromEntries(left) }
  }
  return { speed, credits, clock, limit, books }
}

test.each(['alone', 'in a transaction'])(
  'a denial begins to fill a bucket that does not start full, %s',
  async (where) => {
    const { speed, credits, clock } = speedAndCredits(Ratelimit.tokenBucket(1, '1m', 5, { initialTokens: 0 }))
    const requests = [speed, credits].map((ratelimit) => ({ ratelimit, key: 'key' }))
    const inPlace = <T>(call: (options: { tx?: Db }) => Promise<T>) =>
      where === 'alone' ? call({}) : database.db.transaction((tx) => call({ tx }))
    await credits.grant('key', 2, { id: 'a' })
    expect(await inPlace((options) => limitAll(requests, options))).toMatchObject({ retryAfter: 60_000 })
    clock.advance(60_000)
    expect(await inPlace((options) => limitAll(requests, options))).toMatchObject({ success: true })
    const other = requests.map(({ ratelimit }) => ({ ratelimit, key: 'other' }))
    const spendTwo = () => inPlace((options) => spend(other, { ...options, rate: 2 }))
    expect(await spendTwo()).toMatchObject({ success: false, retryAfter: 120_000 })
    clock.advance(120_000)
    expect(await spendTwo()).toMatchObject({ success: true, granted: [2, 0] })
  },
)

test('all are consumed, each at its own rate, or none', async () => {
  const { credits, limit, books } = speedAndCredits()
  await credits.grant('key', 5, { id: 'a', expires: '1d' })
  await credits.grant('key', 5, { id: 'b' })
  expect(await limit(7)).toMatchObject({
    ...{ success: true, denied: [], retryAfter: 0 },
    results: [
      { success: true, remaining: 1 },
      { success: true, limit: 10, remaining: 3, reset: Infinity },
    ],
  })
  const tooFew = await limit(4)
  expect(tooFew).toMatchObject({
    ...{ success: false, retryAfter: Infinity, denied: [{ ratelimit: credits }] },
    results: [
      { success: true, remaining: 1 },
      { success: false, remaining: 3 },
    ],
  })
  expect(await books()).toEqual({ used: 1, a: 0, b: 3 })
  expect(await limit(1)).toMatchObject({ success: true })
  expect(await limit(1)).toMatchObject({ success: false, results: [{ success: false }, { success: true }] })
  expect(await books()).toEqual({ used: 2, a: 0, b: 2 })
})

describe('retryAfter', () => {
  test('is that of the other limit if the grants last until then', async () => {
    const { credits, clock, limit } = speedAndCredits()
    await credits.grant('key', 9, { id: 'a', expires: new Date(clock.ms + HOUR_MS + 1) })
    await limit(1)
    await limit(1)
    expect(await limit(7)).toMatchObject({ success: false, retryAfter: HOUR_MS })
    clock.advance(HOUR_MS - 1)
    expect(await limit(7)).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await limit(7)).toMatchObject({ success: true })
  })

  test('is Infinity if the grants have ended by then', async () => {
    const { credits, clock, limit } = speedAndCredits()
    await credits.grant('key', 9, { id: 'a', expires: new Date(clock.ms + HOUR_MS) })
    await limit(1)
    await limit(1)
    expect(await limit(7)).toMatchObject({
      ...{ success: false, retryAfter: Infinity },
      results: [{ success: false, retryAfter: HOUR_MS }, { success: true }],
    })
    expect(await limit(1, { force: true })).toMatchObject({ success: false, retryAfter: HOUR_MS })
    await credits.grant('key', 7, { id: 'b' })
    expect(await limit(7)).toMatchObject({ success: false, retryAfter: HOUR_MS })
  })
})

test('a denial writes nothing, also for a key without grants', async () => {
  const { speed, credits, limit } = speedAndCredits()
  const written = () =>
    database.rows(
      `select xmin::text, stored.* from rate_limit_durable stored where prefix like $1
        union all select xmin::text, stored.* from rate_limit_ephemeral stored where prefix = $2
        order by prefix, key`,
      [`%${credits.prefix}`, speed.prefix],
    )
  const once = { id: 'event', for: '1d' } as const
  const never = { success: false, limit: 0, remaining: 0, reset: Infinity, retryAfter: Infinity }
  expect((await limit(1, {}, { once })).results[1]).toEqual(never)
  const [own] = (await limitAll([{ ratelimit: credits, key: 'key' }])).results
  expect(own).toEqual(never)
  expect(await written()).toEqual([])
  await credits.grant('key', 3, { id: 'a' })
  await limit(1)
  const before = await written()
  expect(await limit(3, {}, { once })).toMatchObject({ success: false })
  expect(await written()).toEqual(before)
})

test('a list with credits that have nothing is another one than the list without them', async () => {
  const { speed, limit } = speedAndCredits()
  const alone = () => limitAll([{ ratelimit: speed, key: 'key' }])
  expect(await alone()).toMatchObject({ success: true })
  expect(await limit(1)).toMatchObject({ success: false, results: [{ success: true, remaining: 1 }, {}] })
  expect(await alone()).toMatchObject({ success: true, results: [{ remaining: 0 }] })
})

test('a debt is made by force, if nothing else is denied, and paid by the next call', async () => {
  const { credits, limit, books } = speedAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  expect(await limit(8, { force: true })).toMatchObject({ success: true, results: [{}, { remaining: 0 }] })
  expect(await credits.getRemaining('key')).toMatchObject({ used: 8 })
  await credits.grant('key', 10, { id: 'b' })
  expect(await limit(8)).toMatchObject({ success: false })
  expect(await limit(2)).toMatchObject({ success: true, results: [{}, { remaining: 5 }] })
  expect(await books()).toEqual({ used: 2, a: 0, b: 5 })
  expect(await limit(9, { force: true })).toMatchObject({ success: false })
  expect(await books()).toEqual({ used: 2, a: 0, b: 5 })
})

test('an id is charged once', async () => {
  const { credits, limit, books } = speedAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  const once = { id: 'event', for: '1d' } as const
  expect(await limit(2, {}, { once })).toMatchObject({ success: true })
  expect(await limit(2, {}, { once })).toMatchObject({
    ...{ success: true, repeated: true },
    results: [
      { repeated: true, remaining: 1 },
      { repeated: true, remaining: 3 },
    ],
  })
  expect(await books()).toEqual({ used: 1, a: 3 })
})

test('a refund of another limit and a threshold of the credits are in the answers', async () => {
  const { speed, credits, clock } = speedAndCredits(undefined, { thresholds: [{ left: 4 }] })
  await credits.grant('key', 9, { id: 'a' })
  await speed.limit('key', { rate: 2 })
  const answer = await limitAll([
    { ratelimit: credits, key: 'key', rate: 6 },
    { ratelimit: speed, key: 'key', rate: -2 },
    { ratelimit: speed, key: 'other' },
    { ratelimit: speed, key: 'key', rate: 1 },
  ])
  expect(answer).toMatchObject({
    success: true,
    results: [
      { crossed: [{ left: 4 }], remaining: 3 },
      { returned: 2, remaining: 1 },
      { remaining: 1 },
      { remaining: 1, start: clock.ms },
    ],
  })
  const pure = [
    { ratelimit: speed, key: 'key', rate: -1 },
    { ratelimit: credits, key: 'key', rate: 1 },
  ]
  expect(await limitAll(pure)).toMatchObject({ success: true, results: [{ remaining: 2, returned: 1 }, {}] })
})

test('a commit keeps what was charged', async () => {
  const { credits, limit, books } = speedAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  const { success } = await database.db.transaction((tx) => limit(3, {}, { tx }))
  expect(success).toBe(true)
  expect(await books()).toMatchObject({ a: 2 })
})

test('a rollback undoes all of it', async () => {
  const { credits, limit, books } = speedAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  await undone(database.db, async (tx) => {
    expect(await limit(9, {}, { tx })).toMatchObject({ success: false })
    expect(await limit(3, {}, { tx })).toMatchObject({ success: true })
  })
  expect(await books()).toEqual({ used: 0, a: 5 })
})

test('the credits of several keys are all consumed, or none, and refunds and looks stand next to them', async () => {
  const { credits } = speedAndCredits()
  for (const key of ['a', 'b']) {
    await credits.grant(key, 3, { id: 'first', priority: 1 })
    await credits.grant(key, 4, { id: 'second' })
  }
  const of = (key: string, rate: number) => ({ ratelimit: credits, key, rate })
  expect(await limitAll([of('a', 5), of('b', 6)])).toMatchObject({
    ...{ success: true, results: [{ remaining: 2 }, { remaining: 1 }] },
  })
  expect(await limitAll([of('a', 2), of('b', 2)])).toMatchObject({
    ...{ success: false, retryAfter: Infinity, denied: [{ key: 'b' }] },
    results: [
      { success: true, remaining: 2 },
      { success: false, remaining: 1 },
    ],
  })
  expect(await limitAll([of('a', 2), of('b', -4), of('c', 0)])).toMatchObject({
    ...{
      success: true,
      results: [{ remaining: 0 }, { remaining: 5, returned: 4 }, { limit: 0, remaining: 0 }],
    },
  })
  const left = async (key: string) => (await credits.grants(key)).map((each) => each.left)
  expect([await left('a'), await left('b')]).toEqual([
    [0, 0],
    [1, 4],
  ])
})

test('credits of one prefix and key in two tables are not the same', async () => {
  const common = { db: database.db, dated: true, prefix: 'credits of two tables' } as const
  const [kept, fleeting] = [
    new Credits({ ...common, durable: true }),
    new Credits({ ...common, durable: false }),
  ]
  await kept.grant('key', 5, { id: 'grant' })
  await fleeting.grant('key', 9, { id: 'grant' })
  const sources = [kept, fleeting].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const answer = await limitAll(sources)
  expect(answer.results).toMatchObject([
    { limit: 5, remaining: 4 },
    { limit: 9, remaining: 8 },
  ])
  expect(await spend(sources, { rate: 7 })).toMatchObject({ success: true, granted: [4, 3] })
})

test('a limit with dryRun does not stop the credits', async () => {
  const { credits, limit, books } = speedAndCredits(Ratelimit.fixedWindow(0, '1h'))
  await credits.grant('key', 3, { id: 'a' })
  expect(await limit(2)).toMatchObject({ success: false })
  const { quota: dry } = quotaOn(database, Ratelimit.fixedWindow(0, '1h'), { dryRun: true })
  const call = limitAll([
    { ratelimit: dry, key: 'key' },
    { ratelimit: credits, key: 'key', rate: 2 },
  ])
  expect(await call).toMatchObject({ success: true, results: [{ wouldDeny: { success: false } }, {}] })
  expect(await books()).toEqual({ used: 0, a: 1 })
})

test('another limit on the row of a grant is refused as another plan', async () => {
  const { credits, clock } = speedAndCredits()
  const { prefix } = credits
  const window = new Ratelimit({
    ...{ db: database.db, limiter: Ratelimit.fixedWindow(9, '1h'), prefix, durable: true, clock: clock.now },
    cleanupProbability: 0,
  })
  await credits.grant('key', 5, { id: 'a' })
  const both = limitAll([
    { ratelimit: credits, key: 'key' },
    { ratelimit: window, key: 'key/grant/61' },
  ])
  await expect(both).rejects.toMatchObject({ code: 'OTHER_PLAN' })
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 5 })
})

test('a call is one read and one list, and bad input is refused before any SQL', async () => {
  const watched = watch(database.db)
  const options = { db: watched.db, cleanupProbability: 0 }
  const speed = new Ratelimit({ ...options, limiter: Ratelimit.fixedWindow(99, '1h'), prefix: 'counted all' })
  const credits = new Credits({ ...{ ...options, dated: true, prefix: 'counted in all', durable: true } })
  const part = limitAll([{ ratelimit: credits, key: 'key', rate: 0.5 }])
  await expect(part).rejects.toMatchObject({ code: 'INVALID_RATE' })
  const twice = limitAll([1, 2].map((rate) => ({ ratelimit: credits, key: 'key', rate })))
  await expect(twice).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const own = { ratelimit: credits, key: 'key' }
  const elsewhere = new Ratelimit({ ...options, db: database.db, limiter: speed.limiter, prefix: 'other db' })
  const many = Array.from({ length: 51 }, (_, place) => ({ ratelimit: speed, key: String(place) }))
  const most = Number.MAX_SAFE_INTEGER
  for (const [others, code] of [
    [[{ ratelimit: elsewhere, key: 'key' }], 'INVALID_OPTION'],
    [many, 'INVALID_OPTION'],
    [
      [
        { ratelimit: speed, key: 'key' },
        { ratelimit: speed, key: 'key', limiter: Ratelimit.fixedWindow(1, '1h') },
      ],
      'INVALID_OPTION',
    ],
    [[1, 2].map(() => ({ ratelimit: speed, key: 'key', rate: most })), 'INVALID_RATE'],
  ] as const) {
    const calls = [own, ...others]
    await expect(limitAll(calls)).rejects.toMatchObject({ code })
    await expect(reserveAll(calls)).rejects.toMatchObject({ code })
    if (code === 'INVALID_OPTION') {
      await expect(spend(calls, { rate: 1 })).rejects.toMatchObject({ code })
    }
  }
  expect(watched.statements).toEqual([])
  await credits.grant('key', 50, { id: 'a' })
  const both = [
    { ratelimit: speed, key: 'key' },
    { ratelimit: credits, key: 'key' },
  ]
  await limitAll(both)
  const before = watched.statements.length
  expect(await limitAll(both)).toMatchObject({ success: true })
  expect(watched.statements.length - before).toBe(2)
})
