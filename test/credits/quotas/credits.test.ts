import { count, like } from 'drizzle-orm'
import { block } from 'drizzle-ratelimit/lockout'
import { usage } from 'drizzle-ratelimit/reports'
import { describe, expect, test } from 'vitest'
import { type CreditLimitOptions, Credits } from '../../../src/credits/index.ts'
import { type Database, Ratelimit, rateLimitDurable } from '../../../src/index.ts'
import * as quota from '../../../src/quota/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const DAY_MS = 86_400_000

let prefixes = 0

/** Credits of their own, with a clock that the test moves. */
function creditsOn({
  db = database.db,
  ...options
}: {
  db?: Database
  thresholds?: [{ left: number }]
} = {}) {
  const clock = new TestClock()
  const prefix = `credits ${++prefixes}`
  const credits = new Credits({
    db,
    dated: true,
    prefix,
    durable: true,
    cleanupProbability: 0,
    clock: clock.now,
    ...options,
  })
  const left = async () =>
    Object.fromEntries((await credits.grants('org')).map((each) => [each.id, each.left]))
  return { clock, credits, left, prefix }
}

test('without a grant there is nothing, and a denial writes nothing', async () => {
  const { clock, credits, prefix } = creditsOn()
  const denied = { success: false, limit: 0, remaining: 0, reset: Infinity, retryAfter: Infinity }
  expect(await credits.limit('org')).toEqual(denied)
  expect(await credits.limit('org', { once: { id: 'event', for: '1d' } })).toEqual(denied)
  expect(await credits.getRemaining('org')).toEqual({ limit: 0, remaining: 0, reset: clock.ms, used: 0 })
  expect(await credits.grants('org')).toEqual([])
  const rows = await database.db
    .select({ rows: count() })
    .from(rateLimitDurable)
    .where(like(rateLimitDurable.prefix, `%${prefix}`))
  expect(rows).toEqual([{ rows: 0 }])
})

test('units that were granted without dated do not count until a grant has moved them', async () => {
  const { clock, credits, prefix } = creditsOn()
  const undated = new Credits({ db: database.db, prefix, cleanupProbability: 0, clock: clock.now })
  await undated.grant('org', 10)
  await undated.limit('org', { rate: 4 })
  expect(await credits.limit('org')).toMatchObject({ success: false, limit: 0 })
  await credits.limit('org', { rate: 2, force: true })
  const { remaining } = await undated.getRemaining('org')
  await credits.grant('org', remaining, { id: 'moved' })
  expect(await credits.limit('org')).toMatchObject({ success: true, limit: 6, remaining: 3 })
  expect(await undated.getRemaining('org')).toMatchObject({ limit: 10, used: 4 })
})

test('all calls have one order of ids, also of those beyond the first plane of Unicode', async () => {
  const { credits } = creditsOn()
  for (const id of ['\u{1f600}', '\ufffd']) await credits.grant('org', 10, { id })
  await credits.limit('org')
  await credits.limit('org', { force: true })
  expect((await credits.grants('org')).map(({ used }) => used)).toEqual([2, 0])
})

test('usage lists the keys that have used most, by the grants that have not ended and what is owed', async () => {
  const { credits, clock } = creditsOn()
  await credits.grant('team', 10, { id: 'a' })
  await credits.grant('team', 10, { id: 'b' })
  await credits.limit('team', { rate: 15 })
  await credits.grant('org', 10, { id: 'ends', expires: '1d', priority: 0 })
  await credits.grant('org', 10, { id: 'stays' })
  await credits.limit('org', { rate: 12 })
  await credits.limit('owing', { rate: 1, force: true })
  await credits.grant('new', 10, { id: 'a' })
  const { reset } = await credits.getRemaining('org')
  const team = { key: 'team', limit: 20, used: 15, remaining: 5, reset }
  const owing = { key: 'owing', limit: 0, used: 1, remaining: 0, reset }
  expect(await usage(credits)).toEqual([team, { key: 'org', ...(await credits.getRemaining('org')) }, owing])
  expect(await usage(credits, { top: 1 })).toEqual([team])
  clock.advance(DAY_MS)
  const org = { key: 'org', limit: 10, used: 2, remaining: 8, reset }
  expect(await usage(credits)).toEqual([team, org, owing])
  await database.db.transaction(async (tx) => {
    await credits.limit('org', { rate: 8, tx })
    expect(await usage(credits, { tx })).toEqual([team, { ...org, used: 10, remaining: 0 }, owing])
  })
  const limiterOf = () => Ratelimit.fixedWindow(1, '1d')
  await expect(usage(credits as never, { limiterOf })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})

test('calls take by priority, then by end, then by age, then by id', async () => {
  const { clock, credits, left } = creditsOn()
  await credits.grant('org', 10, { id: 'forever' })
  await credits.grant('org', 10, { id: 'late', expires: '30d' })
  await credits.grant('org', 10, { id: 'soon', expires: '10d' })
  await credits.grant('org', 10, { id: 'last', priority: 51, expires: '1d' })
  await credits.grant('org', 10, { id: 'first', priority: 0 })
  clock.advance(1)
  await credits.grant('org', 10, { id: 'a younger' })
  await credits.grant('org', 10, { id: 'b younger' })
  const order = ['first', 'soon', 'late', 'forever', 'a younger', 'b younger', 'last']
  expect((await credits.grants('org')).map(({ id }) => id)).toEqual(order)
  for (const [place, id] of order.entries()) {
    const remaining = 70 - 10 * place - 10
    expect(await credits.limit('org', { rate: 10 })).toMatchObject({ success: true, limit: 70, remaining })
    expect(await left()).toMatchObject({ [id]: 0 })
  }
  expect(await credits.limit('org')).toMatchObject({ success: false, remaining: 0 })
})

test('one call takes from several grants, or from none', async () => {
  const { credits, left } = creditsOn()
  await credits.grant('org', 10, { id: 'a', expires: '1d' })
  await credits.grant('org', 10, { id: 'b', expires: '2d' })
  expect(await credits.limit('org', { rate: 21 })).toMatchObject({ success: false, remaining: 20 })
  expect(await left()).toEqual({ a: 10, b: 10 })
  expect(await credits.limit('org', { rate: 17 })).toEqual({
    ...{ success: true, limit: 20, remaining: 3, reset: Infinity, retryAfter: 0 },
  })
  expect(await left()).toEqual({ a: 0, b: 3 })
  expect(await credits.limit('org', { rate: 5, atLeast: 3 })).toMatchObject({ success: true, granted: 3 })
  expect(await credits.limit('org', { rate: 5, atLeast: 1 })).toMatchObject({ success: false })
})

test('a grant counts until the millisecond before its end, by a date or a duration', async () => {
  const { clock, credits } = creditsOn()
  await credits.grant('org', 10, { id: 'date', expires: new Date(clock.ms + 1000) })
  await credits.grant('org', 10, { id: 'duration', expires: '1s' })
  await credits.grant('org', 10, { id: 'over', expires: new Date(clock.ms) })
  expect(await credits.getRemaining('org')).toMatchObject({ limit: 20, remaining: 20 })
  clock.advance(999)
  expect(await credits.limit('org', { rate: 15 })).toMatchObject({ success: true, remaining: 5 })
  clock.advance(1)
  expect(await credits.limit('org')).toMatchObject({ success: false, limit: 0, remaining: 0 })
  const grants = await credits.grants('org')
  expect(grants.map(({ id, used, left, ended }) => ({ id, used, left, ended }))).toEqual([
    { id: 'over', used: 0, left: 0, ended: 'expired' },
    { id: 'date', used: 10, left: 0, ended: 'expired' },
    { id: 'duration', used: 5, left: 0, ended: 'expired' },
  ])
})

test('a grant is kept after its end as long as its limiter says, and its id is used up as long', async () => {
  const clock = new TestClock()
  const credits = new Credits({
    ...{ db: database.db, dated: true, keep: '2d', prefix: 'kept' },
    ...{ durable: true, clock: clock.now },
  })
  await credits.grant('org', 10, { id: 'a', expires: '1d' })
  await credits.limit('org', { rate: 3 })
  clock.advance(3 * DAY_MS - 1)
  expect(await credits.cleanup()).toBe(0)
  expect(await credits.grant('org', 10, { id: 'a', expires: '1d' })).toMatchObject({ repeated: true })
  expect(await credits.grants('org')).toMatchObject([{ id: 'a', amount: 10, used: 3, ended: 'expired' }])
  clock.advance(3_600_001)
  expect(await credits.cleanup()).toBe(1)
  expect(await credits.grant('org', 10, { id: 'a', expires: '1d' })).toMatchObject({ remaining: 10 })
})

test('the same id grants once, whatever else it says, also at once and after a use', async () => {
  const { credits } = creditsOn()
  const answers = await Promise.all(
    [1, 2, 3].map((priority) => credits.grant('org', 10, { id: 'payment', priority, expires: '1d' })),
  )
  expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1)
  await credits.limit('org', { rate: 10 })
  const again = await credits.grant('org', 99, { id: 'payment' })
  expect(again).toEqual({ limit: 10, remaining: 0, reset: Infinity, used: 10, repeated: true })
  expect(await credits.grant('other', 10, { id: 'payment' })).toMatchObject({ remaining: 10 })
})

test('a voided grant gives what was left, once, and gets nothing back', async () => {
  const { credits } = creditsOn()
  await credits.grant('org', 10, { id: 'a', expires: '1d', priority: 7 })
  await credits.limit('org', { rate: 4 })
  expect(await credits.voidGrant('org', 'a')).toBe(6)
  expect(await credits.voidGrant('org', 'a')).toBe(0)
  expect(await credits.voidGrant('org', 'unknown')).toBe(0)
  expect(await credits.limit('org')).toMatchObject({ success: false, remaining: 0 })
  expect(await credits.limit('org', { rate: -4 })).toMatchObject({ success: true, returned: 0 })
  expect(await credits.grant('org', 10, { id: 'a' })).toMatchObject({ repeated: true, remaining: 0 })
  expect(await credits.grants('org')).toMatchObject([
    { id: 'a', amount: 10, used: 4, left: 0, priority: 7, ended: 'voided' },
  ])
})

describe('what is given back', () => {
  test('goes to the grants in the opposite order, and no further than what they paid', async () => {
    const { credits, left } = creditsOn()
    await credits.grant('org', 10, { id: 'a', expires: '1d' })
    await credits.grant('org', 10, { id: 'b', expires: '2d' })
    await credits.limit('org', { rate: 15 })
    expect(await credits.limit('org', { rate: -7 })).toMatchObject({ returned: 7, remaining: 12 })
    expect(await left()).toEqual({ a: 2, b: 10 })
    expect(await credits.limit('org', { rate: -20 })).toMatchObject({ returned: 8, remaining: 20 })
    expect(await credits.limit('org', { rate: -1 })).toMatchObject({ returned: 0, remaining: 20 })
  })

  test('is lost where the grant that paid has ended', async () => {
    const { clock, credits, left } = creditsOn()
    await credits.grant('org', 10, { id: 'a', expires: '1d' })
    await credits.grant('org', 10, { id: 'b', expires: '2d' })
    const reserved = await credits.reserve('org', { rate: 15 })
    clock.advance(DAY_MS)
    if (!reserved.success) throw new Error('It was denied.')
    expect(await reserved.release()).toMatchObject({ returned: 5, remaining: 10 })
    expect(await left()).toEqual({ a: 0, b: 10 })
    expect(await credits.grants('org')).toMatchObject([
      { id: 'a', used: 10 },
      { id: 'b', used: 0 },
    ])
  })

  test.each<[string, (credits: Credits<true>) => Promise<() => Promise<unknown>>]>([
    [
      'reserve',
      async (credits) => {
        const reserved = await credits.reserve('org', { rate: 15 })
        return () => (reserved.success ? reserved.release() : expect.fail('denied'))
      },
    ],
    [
      'reserveAll',
      async (credits) => {
        const reserved = await reserveAll([{ ratelimit: credits, key: 'org', rate: 15 }])
        return async () => (reserved.success ? (await reserved.release())[0] : expect.fail('denied'))
      },
    ],
    [
      'spend',
      async (credits) => {
        const spent = await spend([{ ratelimit: credits, key: 'org' }], { rate: 15 })
        return async () => (spent.success ? (await spent.release()).results[0] : expect.fail('denied'))
      },
    ],
  ])('by %s is lost where the grant that paid is gone, though its id was granted again', async (_, take) => {
    const { clock, credits, left } = creditsOn()
    await credits.grant('org', 10, { id: 'a', expires: '1d' })
    await credits.grant('org', 10, { id: 'b' })
    const release = await take(credits)
    clock.advance(366 * DAY_MS)
    await credits.cleanup()
    expect(await left()).toEqual({ b: 5 })
    await credits.grant('org', 10, { id: 'a', expires: '1d' })
    await credits.limit('org', { rate: 8 })
    expect(await left()).toEqual({ a: 2, b: 5 })
    expect(await release()).toMatchObject({ returned: 5 })
    expect(await left()).toEqual({ a: 2, b: 10 })
  })

  test('by a commit goes to more grants than a statement has rows', async () => {
    const { credits, left } = creditsOn()
    await Promise.all(Array.from({ length: 120 }, (_, i) => credits.grant('org', 2, { id: `small ${i}` })))
    const reserved = allowed(await credits.reserve('org', { rate: 240 }))
    expect(await reserved.commit(1)).toMatchObject({ returned: 239, remaining: 239 })
    expect(Object.values(await left()).filter((each) => each === 2)).toHaveLength(119)
  })

  test('by a commit goes to the grants that paid, and not to others', async () => {
    const { credits, left } = creditsOn()
    await credits.grant('org', 10, { id: 'b', expires: '2d' })
    const reserved = await credits.reserve('org', { rate: 8 })
    await credits.grant('org', 10, { id: 'a', expires: '1d' })
    await credits.limit('org', { rate: 6 })
    if (!reserved.success) throw new Error('It was denied.')
    expect(await reserved.commit(3)).toMatchObject({ returned: 5 })
    expect(await left()).toEqual({ a: 4, b: 7 })
    await expect(reserved.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })
})

describe('a debt', () => {
  test('of a forced call is paid by the next call', async () => {
    const { credits, left } = creditsOn()
    await credits.grant('org', 10, { id: 'a' })
    expect(await credits.limit('org', { rate: 13, force: true })).toMatchObject({
      ...{ success: true, limit: 10, remaining: 0 },
    })
    expect(await credits.getRemaining('org')).toMatchObject({ remaining: 0, used: 13 })
    expect(await credits.grant('org', 10, { id: 'b' })).toMatchObject({ limit: 20, remaining: 7, used: 13 })
    expect(await credits.limit('org', { rate: 8 })).toMatchObject({ success: false, remaining: 7 })
    expect(await left()).toEqual({ a: 0, b: 10 })
    expect(await credits.limit('org', { rate: 2 })).toMatchObject({ success: true, remaining: 5 })
    expect(await left()).toEqual({ a: 0, b: 5 })
  })

  test('of a cost above its estimate is given back first', async () => {
    const { credits, left } = creditsOn()
    await credits.grant('org', 10, { id: 'a' })
    const reserved = allowed(await credits.reserve('org', { rate: 8 }))
    expect(await reserved.commit(14)).toMatchObject({ success: true, remaining: 0 })
    expect(await credits.limit('org', { rate: -5 })).toMatchObject({ returned: 5, remaining: 1 })
    expect(await left()).toEqual({ a: 1 })
  })

  test('without any grant', async () => {
    const { credits } = creditsOn()
    expect(await credits.limit('org', { rate: 3, force: true })).toMatchObject({
      success: true,
      remaining: 0,
    })
    expect(await credits.limit('org', { rate: 3, force: true })).toMatchObject({ success: true })
    expect(await credits.getRemaining('org')).toMatchObject({ used: 6, limit: 0 })
    expect(await credits.limit('org', { rate: -9 })).toMatchObject({ returned: 6 })
  })
})

test('an id is charged once, also if it is denied then', async () => {
  const { credits } = creditsOn()
  await credits.grant('org', 10, { id: 'a' })
  const event = (rate: number) => credits.limit('org', { rate, once: { id: 'event', for: '1d' } })
  expect(await event(11)).toMatchObject({ success: false })
  expect(await event(10)).toMatchObject({ success: true, remaining: 0 })
  expect(await event(10)).toEqual({
    ...{ success: true, limit: 10, remaining: 0, reset: Infinity, retryAfter: 0, repeated: true },
  })
  const refund = () => credits.limit('org', { rate: -2, once: { id: 'refund', for: '1d' } })
  expect(await refund()).toEqual({
    ...{ success: true, limit: 10, remaining: 2, reset: Infinity, retryAfter: 0, returned: 2 },
  })
  expect(await refund()).toMatchObject({ returned: 0, repeated: true, remaining: 2 })
})

test('a rollback undoes grants, charges, refunds and voids', async () => {
  const { credits, left } = creditsOn()
  await credits.grant('org', 10, { id: 'a' })
  await credits.limit('org', { rate: 4 })
  await undone(database.db, async (tx) => {
    expect(await credits.grant('org', 5, { id: 'b', tx })).toMatchObject({ remaining: 11 })
    expect(await credits.limit('org', { rate: 9, tx })).toMatchObject({ remaining: 2 })
    expect(await credits.limit('org', { rate: -1, tx })).toMatchObject({ returned: 1, remaining: 3 })
    expect(await credits.voidGrant('org', 'a', { tx })).toBe(0)
    expect(await credits.voidGrant('org', 'b', { tx })).toBe(3)
    expect(await credits.getRemaining('org', { tx })).toMatchObject({ remaining: 0 })
  })
  expect(await left()).toEqual({ a: 6 })
})

test('a threshold is crossed over all grants, once, and again after a grant', async () => {
  const { credits } = creditsOn({ thresholds: [{ left: 5 }] })
  await credits.grant('org', 10, { id: 'a' })
  await credits.grant('org', 10, { id: 'b' })
  expect(await credits.limit('org', { rate: 14 })).not.toHaveProperty('crossed')
  expect(await credits.limit('org')).toMatchObject({ crossed: [{ left: 5 }] })
  expect(await credits.limit('org')).not.toHaveProperty('crossed')
  await credits.grant('org', 10, { id: 'c' })
  expect(await credits.limit('org', { rate: 9 })).toMatchObject({ crossed: [{ left: 5 }], remaining: 5 })
})

test('a threshold is crossed by what is left in all when the call is charged', async () => {
  const { credits: others, prefix, clock } = creditsOn()
  await others.grant('org', 10, { id: 'a' })
  await others.grant('org', 10, { id: 'b' })
  let hasRead = false
  const { db } = watch(database.db, async (text) => {
    if (!text.includes('for update') || hasRead) return
    hasRead = true
    await others.voidGrant('org', 'b')
  })
  const thresholds = [{ left: 5 }]
  const common = { db, dated: true, prefix, durable: true, clock: clock.now, cleanupProbability: 0 } as const
  const credits = new Credits({ ...common, thresholds })
  expect(await credits.limit('org', { rate: 9 })).toMatchObject({ remaining: 1, crossed: thresholds })
})

test('keys and ids of any kind keep to themselves', async () => {
  const { credits } = creditsOn()
  const texts = ['org', 'org/grant/61', 'org/debt', 'ORG', 'órg', '', '😀', '\uFEFFa', '%_\\', "'"]
  for (const key of texts.filter(Boolean)) {
    for (const id of texts.filter(Boolean)) await credits.grant(key, 1, { id })
    await credits.limit(key, { rate: 10, force: true })
  }
  for (const key of texts.filter(Boolean)) {
    const ids = (await credits.grants(key)).map(({ id }) => id)
    expect([key, ids.toSorted()]).toEqual([key, texts.filter(Boolean).toSorted()])
    expect(await credits.getRemaining(key)).toMatchObject({ limit: 9, used: 10 })
  }
})

test.each<[string, CreditLimitOptions]>([
  ['alone', {}],
  ['with atLeast', { atLeast: 1 }],
  ['by force', { force: true }],
])('no call takes from the grants of a key that looks like a grant of its own: %s', async (_, options) => {
  const { credits } = creditsOn()
  const other = 'org/grant/61'
  await credits.grant(other, 100, { id: 'a' })
  await credits.grant('org', 5, { id: 'a' })
  const { success } = await credits.limit('org', { rate: 50, ...options })
  expect(success).toBe('atLeast' in options || 'force' in options)
  expect(await credits.getRemaining(other)).toMatchObject({ limit: 100, used: 0 })
  expect(await credits.limit(other, { rate: 100 })).toMatchObject({ success: true, remaining: 0 })
})

test('every call takes from as many grants as it needs, or from none', async () => {
  const { credits } = creditsOn()
  await Promise.all(Array.from({ length: 120 }, (_, i) => credits.grant('org', 1, { id: `small ${i}` })))
  const once = { id: 'event', for: '1d' } as const
  expect(await credits.limit('org', { rate: 121, once })).toMatchObject({ success: false, remaining: 120 })
  expect(await credits.limit('org', { rate: 60, once })).toMatchObject({ success: true, remaining: 60 })
  expect(await credits.limit('org', { rate: 60, once })).toMatchObject({ repeated: true, remaining: 60 })
  const reserved = await credits.reserve('org', { rate: 2 })
  if (!reserved.success) expect.fail('denied')
  expect(await reserved.commit(55)).toMatchObject({ success: true, remaining: 5 })
  expect((await credits.grants('org')).filter(({ left }) => left > 0)).toHaveLength(5)
  expect(await credits.limit('org', { rate: -115 })).toMatchObject({ returned: 115, remaining: 120 })
  expect(await credits.limit('org', { rate: 125, force: true })).toMatchObject({ success: true })
  expect(await credits.getRemaining('org')).toMatchObject({ used: 125, remaining: 0 })
  await credits.grant('org', 55, { id: 'large' })
  expect(await credits.limit('org', { rate: 60, atLeast: 2 })).toMatchObject({ granted: 50, remaining: 0 })
  expect(await credits.getRemaining('org')).toMatchObject({ used: 175, remaining: 0 })
})

test('a call on many grants joins a transaction, and a rollback undoes it', async () => {
  const { credits } = creditsOn()
  await Promise.all(Array.from({ length: 60 }, (_, i) => credits.grant('org', 1, { id: `small ${i}` })))
  await undone(database.db, async (tx) => {
    expect(await credits.limit('org', { rate: 55, tx })).toMatchObject({ success: true, remaining: 5 })
    expect(await credits.limit('org', { rate: 6, tx })).toMatchObject({ success: false, remaining: 5 })
  })
  expect(await credits.getRemaining('org')).toMatchObject({ used: 0, remaining: 60 })
})

test('with atLeast, a call takes what the grants have', async () => {
  const { credits } = creditsOn()
  await Promise.all(Array.from({ length: 60 }, (_, i) => credits.grant('org', 1, { id: `small ${i}` })))
  expect(await credits.limit('org', { rate: 80, atLeast: 1 })).toMatchObject({ success: true, granted: 60 })
  expect(await credits.limit('org', { rate: 60, atLeast: 1 })).toMatchObject({ success: false })
})

test('many keys are looked at in one statement, each as by itself', async () => {
  const watched = watch(database.db)
  const { credits } = creditsOn({ db: watched.db })
  const [some, owing, none] = ['some', 'owing', 'none']
  for (const id of ['a', 'b']) await credits.grant(some, 10, { id })
  await credits.limit(some, { rate: 13 })
  await credits.limit(owing, { rate: 5, force: true })
  const keys = [owing, none, some, owing]
  const before = watched.statements.length
  const all = await credits.getRemainingAll(keys)
  expect(watched.statements.length - before).toBe(1)
  expect(all.map(({ limit, remaining, used }) => [limit, remaining, used])).toEqual([
    [0, 0, 5],
    [0, 0, 0],
    [20, 7, 13],
    [0, 0, 5],
  ])
  expect(await credits.getRemainingAll([])).toEqual([])
  await database.db.transaction(async (tx) => {
    await credits.limit(some, { tx })
    expect(await credits.getRemainingAll([some], { tx })).toMatchObject([{ remaining: 6 }])
  })
  await expect(credits.getRemainingAll([some, ''])).rejects.toMatchObject({ code: 'INVALID_KEY' })
})

test('a hashed key finds its grants', async () => {
  const options = { db: database.db, dated: true, prefix: 'hashed credits' } as const
  const credits = new Credits({ ...options, durable: true, hashKeys: true })
  await credits.grant('ada@example.com', 10, { id: 'a' })
  expect(await credits.limit('ada@example.com')).toMatchObject({ success: true, remaining: 9 })
  expect(await credits.getRemainingAll(['ada@example.com'])).toMatchObject([{ limit: 10, used: 1 }])
  const keys = await database.db.select({ key: rateLimitDurable.key }).from(rateLimitDurable)
  expect(keys.filter(({ key }) => key.includes('ada'))).toEqual([])
})

test('a call on live grants is one statement, and so is a denial', async () => {
  const watched = watch(database.db)
  const { credits } = creditsOn({ db: watched.db })
  for (const id of ['a', 'b', 'c']) await credits.grant('org', 10, { id })
  const statements = async (rate: number) => {
    const before = watched.statements.length
    await credits.limit('org', { rate })
    return watched.statements.length - before
  }
  expect([await statements(5), await statements(20), await statements(50)]).toEqual([1, 1, 1])
})

describe('a key with many grants', () => {
  const calls: Record<string, (credits: Credits<true>) => Promise<unknown>> = {
    'a grant': (credits) => credits.grant('org', 10, { id: 'new' }),
    'a repeated grant': (credits) => credits.grant('org', 10, { id: '1' }),
    'a look': (credits) => credits.getRemaining('org'),
    'a void': (credits) => credits.voidGrant('org', '1'),
  }

  test.each(Object.entries(calls))(
    '%s gets as few rows as on a key with two, by as many statements',
    async (_, call) => {
      const costs = await Promise.all(
        [2, 60].map(async (grants) => {
          const counting = countRows(database.db)
          const { credits } = creditsOn({ db: counting.db })
          for (let id = 0; id < grants; id++) await credits.grant('org', 10, { id: `${id}` })
          counting.clear()
          await call(credits)
          return counting.counted()
        }),
      )
      expect(costs[1]).toEqual(costs[0])
      expect(costs[0]?.rows).toBeGreaterThan(0)
    },
  )

  /** The database, and how many statements it was sent and rows it has answered with. */
  function countRows(db: Database) {
    let [rows, statements] = [0, 0]
    const execute: Database['execute'] = async (query) => {
      const answer: unknown = await db.execute(query)
      const found = answer !== null && typeof answer === 'object' && 'rows' in answer ? answer.rows : answer
      rows += Array.isArray(found) ? found.length : 0
      statements++
      return answer
    }
    const clear = () => {
      rows = statements = 0
    }
    return { db: { ...watch(db).db, execute }, clear, counted: () => ({ rows, statements }) }
  }
})

test('an answer adds up what has not ended, what is used and what is owed', async () => {
  const { clock, credits } = creditsOn()
  await credits.grant('org', 10, { id: 'ends', expires: '1d', priority: 0 })
  await credits.grant('org', 20, { id: 'stays' })
  await credits.grant('org', 5, { id: 'voided' })
  await credits.limit('org', { rate: 14 })
  await credits.voidGrant('org', 'voided')
  const before = { limit: 30, used: 14, remaining: 16, reset: Number.POSITIVE_INFINITY }
  expect(await credits.getRemaining('org')).toEqual(before)
  clock.advance(DAY_MS)
  const after = { limit: 20, used: 4, remaining: 16, reset: Number.POSITIVE_INFINITY }
  expect(await credits.getRemaining('org')).toEqual(after)
  await credits.limit('org', { rate: 18, force: true })
  expect(await credits.getRemaining('org')).toEqual({ ...after, used: 22, remaining: 0 })
  const granted = { limit: 21, used: 22, remaining: 0, reset: Number.POSITIVE_INFINITY }
  expect(await credits.grant('org', 1, { id: 'more' })).toEqual(granted)
  expect(await credits.grant('org', 4, { id: 'more' })).toEqual({ ...granted, repeated: true })
})

test('one call takes from more grants than a list has rows, and pays a debt before', async () => {
  const { credits } = creditsOn()
  await credits.grant('org', 1, { id: 'first', priority: 0 })
  await credits.limit('org', { rate: 8, force: true })
  await Promise.all(Array.from({ length: 120 }, (_, i) => credits.grant('org', 1, { id: `small ${i}` })))
  expect(await credits.limit('org', { rate: 114 })).toMatchObject({ success: false, remaining: 113 })
  expect(await credits.limit('org', { rate: 112 })).toMatchObject({ success: true, remaining: 1 })
  const rows = await credits.grants('org')
  expect(rows.map(({ used }) => used)).toEqual([...new Array(120).fill(1), 0])
  expect(await credits.limit('org', { rate: 1 })).toMatchObject({ success: true, limit: 121, remaining: 0 })
})

test('bad input is refused before any SQL', async () => {
  const { credits } = creditsOn()
  const grant = (amount: number, options: object) => credits.grant('org', amount, options as { id: string })
  for (const [amount, options] of [
    [10, {}],
    [10, { id: '' }],
    [10, { id: '\uD800' }],
    [10, { id: 'x'.repeat(510) }],
    [10, { id: 'a', priority: -1 }],
    [10, { id: 'a', priority: 1.5 }],
    [10, { id: 'a', priority: 101 }],
    [10, { id: 'a', expires: new Date(Number.NaN) }],
    [10, { id: 'a', once: { id: 'b', for: '1d' } }],
  ] as const)
    await expect(grant(amount, options)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(grant(10, { id: 'a', expires: 'soon' })).rejects.toMatchObject({ code: 'INVALID_DURATION' })
  for (const amount of [0, -1, 1.5, 2 ** 53])
    await expect(grant(amount, { id: 'a' })).rejects.toMatchObject({ code: 'INVALID_RATE' })
  await expect(credits.limit('')).rejects.toMatchObject({ code: 'INVALID_KEY' })
  await expect(credits.limit('org', { rate: 0.5 })).rejects.toMatchObject({ code: 'INVALID_RATE' })
  await expect(credits.reserve('org', { rate: -1 })).rejects.toMatchObject({ code: 'INVALID_RATE' })
  expect(await credits.grants('org')).toEqual([])
})

test('an end in seconds, as payment providers give it, is no grant that has ended in 1970', async () => {
  const { credits } = creditsOn()
  const seconds = Date.UTC(2027, 0) / 1000
  await expect(credits.grant('org', 10, { id: 'a', expires: new Date(seconds) })).rejects.toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringContaining('new Date(seconds * 1000)'),
  })
  const expires = new Date(seconds * 1000)
  expect(await credits.grant('org', 10, { id: 'a', expires })).toMatchObject({ remaining: 10 })
})

test('nothing is asked after a refund, because an error would say that nothing was given back', async () => {
  const broken = { isOn: false }
  const watched = watch(database.db, (text) => {
    if (broken.isOn) throw new Error('The connection broke.')
    broken.isOn = text.includes('for update')
  })
  const { credits, prefix, clock } = creditsOn({ db: watched.db })
  const own = { db: database.db, dated: true, prefix, durable: true, clock: clock.now } as const
  await new Credits(own).grant('org', 10, { id: 'a' })
  const answers: unknown[] = []
  const reserved = allowed(await credits.reserve('org', { rate: 8 }))
  broken.isOn = false
  answers.push(await reserved.commit(5))
  broken.isOn = false
  answers.push(await credits.limit('org', { rate: -2 }))
  expect(answers).toMatchObject([
    { returned: 3, remaining: 5 },
    { returned: 2, remaining: 7 },
  ])
})

test('what does not go together is refused before any SQL, also without types', async () => {
  const watched = watch(database.db)
  const { credits, prefix } = creditsOn({ db: watched.db })
  // biome-ignore lint/suspicious/noExplicitAny: that is the point.
  const [untyped, all]: [any, any] = [credits, quota]
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const config = { db: watched.db, dated: true, prefix } as const
  const requests = [{ ratelimit: untyped, key: 'org' }]
  for (const call of [
    () => all.reserveAll(requests, { expires: '1h' }),
    () => all.reserveAll([{ ...requests[0], force: true }]),
    () => all.reserveAll([{ ...requests[0], limiter }]),
    () => untyped.limit('org', { limiter }),
    () => untyped.blockUntilReady('org', 0, { limiter }),
    () => block(untyped, 'org', '1m'),
    () => untyped.settle('text', 1),
    () => untyped.voidGrant.call(new Credits({ db: watched.db, prefix: 'undated' }), 'org', 'a'),
    ...['inMemoryBlock', 'keepEnded', 'limiter', 'onOtherPlan'].map(
      (option) => async () => new Credits({ ...config, [option]: true }),
    ),
  ])
    await expect(call(), String(call)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(watched.statements).toEqual([])
})

describe('when the connection breaks', () => {
  /** Credits whose statements of one kind fail from now on, as if their answer were lost. */
  async function breaking(isLost: (text: string) => boolean) {
    let isBreaking = false
    const { db } = watch(database.db, (text) => {
      if (isBreaking && isLost(text)) throw Object.assign(new Error('lost'), { code: 'ECONNRESET' })
    })
    const { credits } = creditsOn({ db })
    for (const id of ['grant', 'other']) await credits.grant('org', 5, { id })
    const reserved = allowed(await credits.reserve('org', { rate: 6 }))
    const during = async <T>(work: () => Promise<T>) => {
      isBreaking = true
      return work().finally(() => {
        isBreaking = false
      })
    }
    return { credits, reserved, during }
  }
  const isRead = (text: string) => !/for update|insert into/.test(text)

  test.each([2, 6, 9])(
    'while a cost of %d reads, nothing was charged, and it is settled again',
    async (cost) => {
      const { credits, reserved, during } = await breaking(isRead)
      await expect(during(() => reserved.commit(cost))).rejects.toMatchObject({ code: 'UNREACHABLE' })
      expect(await credits.getRemaining('org')).toMatchObject({ used: 6 })
      await reserved.commit(cost)
      expect(await credits.getRemaining('org')).toMatchObject({ used: cost })
    },
  )

  test('after a grant, its outcome is unknown, and the same grant again says that it was made', async () => {
    const { credits, during } = await breaking(isRead)
    const granting = () => credits.grant('org', 5, { id: 'second' })
    await expect(during(granting)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect(await granting()).toMatchObject({ remaining: 9, repeated: true })
  })
})
