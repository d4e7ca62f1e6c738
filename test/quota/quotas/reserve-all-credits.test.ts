import { blocks } from 'drizzle-ratelimit/lockout'
import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type LimitResult, limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// `reserveAll` with credits that end: estimates that are charged and settled together.

const database = useDatabase()

let prefixes = 0

function tokensAndCredits(db = database.db) {
  const { quota, clock } = quotaOn(database, Ratelimit.fixedWindow(50, '1h'))
  const tokens = new Ratelimit({
    ...{ db, limiter: Ratelimit.fixedWindow(50, '1h'), prefix: quota.prefix, clock: clock.now },
    ...{ durable: true, cleanupProbability: 0 },
  })
  const credits = new Credits({
    ...{ db, dated: true, prefix: `reserve all ${++prefixes}`, durable: true },
    ...{ clock: clock.now, cleanupProbability: 0 },
  })
  const reserve = async (rates: readonly [number, number], options = {}) => {
    const reserved = await reserveAll(
      [
        { ratelimit: tokens, key: 'key', rate: rates[0] },
        { ratelimit: credits, key: 'key', rate: rates[1] },
      ],
      options,
    )
    return reserved.success ? reserved : expect.fail('denied')
  }
  /** What the window has used, what each grant has left, and what is owed. */
  const books = async () => {
    const grants = await credits.grants('key')
    const live = grants.filter(({ ended }) => !ended)
    const owed = (await credits.getRemaining('key')).used - live.reduce((sum, { used }) => sum + used, 0)
    return [(await tokens.getRemaining('key')).used, ...grants.map(({ left }) => left), owed]
  }
  return { tokens, credits, clock, reserve, books }
}

test('estimates are charged all or none, and given back all or none', async () => {
  const { tokens, credits, reserve, books } = tokensAndCredits()
  await credits.grant('key', 5, { id: 'a', expires: '1d' })
  await credits.grant('key', 5, { id: 'b' })
  const reserved = await reserve([10, 7])
  expect(reserved).toMatchObject({
    denied: [],
    retryAfter: 0,
    results: [{ remaining: 40 }, { remaining: 3 }],
  })
  expect(await books()).toEqual([10, 0, 3, 0])
  const denied = await reserveAll([
    { ratelimit: tokens, key: 'key' },
    { ratelimit: credits, key: 'key', rate: 4 },
  ])
  expect(denied).toMatchObject({ success: false, retryAfter: Infinity, denied: [{ ratelimit: credits }] })
  expect(denied).not.toHaveProperty('commit')
  expect(await reserved.release()).toMatchObject([
    { success: true, remaining: 50, returned: 10 },
    { success: true, remaining: 10, returned: 7 },
  ])
  expect(await books()).toEqual([0, 5, 5, 0])
  await expect(reserved.commit([1, 1])).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})

test('costs below the estimates go back to the grant that paid last, costs above are taken, into debt', async () => {
  const { credits, reserve, books } = tokensAndCredits()
  await credits.grant('key', 5, { id: 'a', expires: '1d' })
  await credits.grant('key', 5, { id: 'b' })
  expect(await (await reserve([10, 7])).commit([12, 6])).toMatchObject([
    { remaining: 38 },
    { remaining: 4, returned: 1 },
  ])
  expect(await books()).toEqual([12, 0, 4, 0])
  const answers: LimitResult[] = [...(await (await reserve([1, 1])).commit([0, 2]))]
  expect(answers).toMatchObject([{ remaining: 38, returned: 1 }, { remaining: 2 }])
  expect(answers[1]).not.toHaveProperty('returned')
  expect(await (await reserve([1, 1])).commit([1, 1])).toMatchObject([{ remaining: 37 }, { remaining: 1 }])
  expect(await (await reserve([1, 1])).commit([1, 9])).toMatchObject([{ remaining: 36 }, { remaining: 0 }])
  expect(await books()).toEqual([14, 0, 0, 8])
})

test('a grant that has ended gets nothing back, and the window that paid does', async () => {
  const { credits, clock, reserve, books } = tokensAndCredits()
  await credits.grant('key', 5, { id: 'a', expires: new Date(clock.ms + HOUR_MS / 2) })
  await credits.grant('key', 5, { id: 'b' })
  const reserved = await reserve([10, 7])
  clock.advance(HOUR_MS / 2)
  expect(await reserved.release()).toMatchObject([{ returned: 10 }, { returned: 2 }])
  expect((await books()).toSorted()).toEqual([0, 0, 0, 5])
})

test('costs above the estimates are taken from as many grants as they need', async () => {
  const { credits } = tokensAndCredits()
  await Promise.all(Array.from({ length: 60 }, (_, i) => credits.grant('key', 1, { id: `small ${i}` })))
  const others = Array.from({ length: 10 }, () => ({ ratelimit: tokensAndCredits().tokens, key: 'key' }))
  const reserved = await reserveAll([...others, { ratelimit: credits, key: 'key' }])
  if (!reserved.success) expect.fail('denied')
  const settled = await reserved.commit([...others.map(() => 2), 46])
  expect(settled.at(-1)).toMatchObject({ success: true, remaining: 14 })
  expect(settled.at(0)).toMatchObject({ remaining: 48 })
})

test('what is forced takes from as many grants as it needs next to limits with blocks', async () => {
  const { credits } = tokensAndCredits()
  await Promise.all(Array.from({ length: 20 }, (_, i) => credits.grant('key', 1, { id: `small ${i}` })))
  const others = Array.from({ length: 20 }, (_, i) => {
    const limiter = Ratelimit.fixedWindow(50, '1h')
    const common = { db: database.db, durable: true, use: [blocks()], cleanupProbability: 0 }
    return { ratelimit: new Ratelimit({ ...common, limiter, prefix: `gated ${i}` }), key: 'key' }
  })
  const forced = { ratelimit: credits, key: 'key', rate: 15, force: true }
  expect(await limitAll([forced, ...others])).toMatchObject({ success: true })
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 5, used: 15 })
  const left = (await credits.grants('key')).map((each) => each.left)
  expect(left.filter((each) => each > 0)).toHaveLength(5)
})

test('a list has at most 50 rows of its own, and credits may have any number', async () => {
  const { credits, tokens } = tokensAndCredits()
  await Promise.all(Array.from({ length: 30 }, (_, i) => credits.grant('key', 1, { id: `small ${i}` })))
  const others = Array.from({ length: 50 }, (_, i) => ({ ratelimit: tokens, key: `key ${i}` }))
  const both = (rate: number) => [...others, { ratelimit: credits, key: 'key', rate }]
  expect(await limitAll(both(30))).toMatchObject({ success: true })
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 0, used: 30 })
  expect(await limitAll(both(1))).toMatchObject({ success: false })
  expect(await tokens.getRemaining('key 49')).toMatchObject({ used: 1 })
  const tooMany = limitAll([...both(1), { ratelimit: tokens, key: 'one more' }])
  await expect(tooMany).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})

test('credits alone are reserved and settled too', async () => {
  const { credits } = tokensAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  const reserved = await reserveAll([{ ratelimit: credits, key: 'key', rate: 3 }])
  if (!reserved.success) expect.fail('denied')
  expect(await reserved.commit([3])).toMatchObject([{ remaining: 2 }])
})

test('a rollback undoes a settlement, which can be repeated', async () => {
  const { credits, reserve, books } = tokensAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  const reserved = await reserve([10, 3])
  for (const costs of [
    [2, 1],
    [12, 8],
  ]) {
    await undone(database.db, async (tx) => {
      await reserved.commit(costs, { tx })
    })
    expect(await books()).toEqual([10, 2, 0])
  }
  await database.db.transaction((tx) => reserved.commit([12, 4], { tx }))
  expect(await books()).toEqual([12, 1, 0])
})

test('a commit takes from more grants than a statement has rows', async () => {
  const { credits, reserve, books } = tokensAndCredits()
  await Promise.all(Array.from({ length: 60 }, (_, i) => credits.grant('key', 1, { id: `small ${i}` })))
  await (await reserve([1, 1])).commit([1, 56])
  const [used, ...rest] = await books()
  expect([used, rest.at(-1)]).toEqual([1, 0])
  expect(await credits.limit('key', { rate: 5 })).toMatchObject({ success: false, remaining: 4 })
  expect(await credits.limit('key', { rate: 4 })).toMatchObject({ success: true, remaining: 0 })
  expect((await books()).slice(1)).toEqual(new Array(61).fill(0))
})

test('wrong costs and plans are refused before any SQL', async () => {
  const watched = watch(database.db)
  const { credits, reserve } = tokensAndCredits(watched.db as typeof database.db)
  await credits.grant('key', 5, { id: 'a' })
  const reserved = await reserve([1, 1])
  const before = watched.statements.length
  for (const costs of [[1], [1, 0.5], [1, -1], [1, 1, 1]]) {
    const code = costs.length === 2 ? 'INVALID_RATE' : 'INVALID_OPTION'
    await expect(reserved.commit(costs)).rejects.toMatchObject({ code })
  }
  const limiters = [undefined, Ratelimit.fixedWindow(5, '1h')]
  await expect(reserved.commit([1, 1], { limiters })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(watched.statements.length).toBe(before)
  await reserved.commit([1, 1])
  expect(watched.statements.length).toBe(before + 2)
})
