import { describe, expect, test } from 'vitest'
import { type LimitResult, limitAll, Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, kinds, type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const DRY = { dryRun: true }

/** What a dry run says where a plain limiter gives this answer. */
function dryOf(plain: LimitResult): LimitResult {
  if (plain.success) return plain
  // The call passed, so it started no block.
  const { blockedUntil: _, ...answer } = plain
  return { ...answer, success: true, retryAfter: 0, wouldDeny: plain }
}

/** A dry run, and a plain limiter at the same time. */
function both(...[limiter, options]: [Parameters<typeof quotaOn>[1], Parameters<typeof quotaOn>[2]?]) {
  const dry = quotaOn(database, limiter, { ...options, ...DRY })
  const plain = quotaOn(database, limiter, { ...options, clock: dry.clock.now })
  const expectEqual = async (key: string) => {
    expect(await dry.quota.getRemaining(key)).toEqual(await plain.quota.getRemaining(key))
    expect(await counts(dry)).toEqual(await counts(plain))
  }
  return { dry, plain, expectEqual }
}

async function counts({ rows }: QuotaUnderTest): Promise<unknown[]> {
  return (await rows()).map(({ stored }) => ({ ...(stored as object), prefix: '' }))
}

describe.each(kinds)('$name', ({ limiter }) => {
  test('lets all calls pass, marks those that it would deny, and charges the others', async () => {
    const { dry, plain, expectEqual } = both(limiter)
    let denials = 0
    for (const rate of [4, 11, 4, 4, 1, 2, 1, 1, 0, -3, 4, 3, 3]) {
      const answer = await plain.quota.limit('key', { rate })
      if (!answer.success) denials++
      expect(await dry.quota.limit('key', { rate })).toEqual(dryOf(answer))
      await expectEqual('key')
      dry.clock.advance(HOUR_MS / 3)
    }
    expect(denials).toBeGreaterThan(3)
  })

  test('a call that it would deny leaves no row and changes none', async () => {
    const { quota, rows } = quotaOn(database, limiter, DRY)
    await quota.limit('never', { rate: 11 })
    expect(await rows()).toEqual([])
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    for (let i = 0; i < 3; i++) expect(await quota.limit('key', { rate: 3 })).toHaveProperty('wouldDeny')
    expect(await rows()).toEqual(before)
  })

  test('does the same for equal calls at once', async () => {
    const { dry, plain, expectEqual } = both(limiter)
    const at = ({ quota }: QuotaUnderTest) =>
      Promise.all([4, 4, 4, 4].map((rate) => quota.limit('key', { rate })))
    expect(await at(dry)).toEqual((await at(plain)).map(dryOf))
    await expectEqual('key')
  })

  test('does the same in a transaction, and is rolled back with it', async () => {
    const { quota, rows } = quotaOn(database, limiter, DRY)
    await undone(database.db, async (tx) => {
      expect(await quota.limit('key', { rate: 8, tx })).not.toHaveProperty('wouldDeny')
      expect(await quota.limit('key', { rate: 8, tx })).toMatchObject({ success: true, wouldDeny: {} })
    })
    expect(await rows()).toEqual([])
  })

  test('force consumes', async () => {
    const { quota } = quotaOn(database, limiter, DRY)
    expect(await quota.limit('key', { rate: 12, force: true })).not.toHaveProperty('wouldDeny')
    expect(await quota.getRemaining('key')).toMatchObject({ used: 12 })
  })

  test('a call that it would deny crosses no threshold', async () => {
    const { quota } = quotaOn(database, limiter, { ...DRY, thresholds: [0.8] })
    await quota.limit('key', { rate: 7 })
    expect(await quota.limit('key', { rate: 4 })).not.toHaveProperty('crossed')
    expect(await quota.limit('key', { rate: 1 })).toMatchObject({ crossed: [0.8] })
  })

  test('blockUntilReady does not wait', async () => {
    const { dry, plain } = both(limiter)
    for (const { quota } of [dry, plain]) await quota.limit('key', { rate: 10 })
    const denied = await plain.quota.limit('key')
    expect(await dry.quota.blockUntilReady('key', '365d')).toEqual(dryOf(denied))
  })

  test('a reservation that it would deny costs nothing, whatever its commit says', async () => {
    const { quota, rows } = quotaOn(database, limiter, DRY)
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    const reserved = await quota.reserve('key', { rate: 4 })
    if (reserved.success) expect(await reserved.commit(6)).toMatchObject({ success: true, remaining: 2 })
    expect(await rows()).toEqual(before)
  })
})

describe('limitAll', () => {
  test('a call that a dry run would deny writes nothing', async () => {
    const { quota, rows } = quotaOn(database, TEN['fixed window'], DRY)
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    const { results } = await limitAll([{ ratelimit: quota, key: 'key', rate: 3 }])
    expect(results).toMatchObject([{ success: true, wouldDeny: { remaining: 2 } }])
    expect(await rows()).toEqual(before)
  })

  test('a dry run that would deny does not deny the others, which are consumed', async () => {
    const { dry, plain } = both(TEN['fixed window'])
    const other = quotaOn(database, TEN['sliding window'])
    for (const { quota } of [dry, plain]) await quota.limit('key', { rate: 10 })
    const denied = await plain.quota.limit('key', { rate: 2 })
    const answer = await limitAll([
      { ratelimit: dry.quota, key: 'key', rate: 2 },
      { ratelimit: other.quota, key: 'key', rate: 3 },
      { ratelimit: dry.quota, key: 'other', rate: 4 },
    ])
    expect(answer).toMatchObject({ success: true, denied: [], retryAfter: 0 })
    expect(answer.results[0]).toEqual(dryOf(denied))
    expect(answer.results.map(({ remaining }) => remaining)).toEqual([0, 7, 6])
    expect(await other.quota.getRemaining('key')).toMatchObject({ used: 3 })
    expect(await dry.quota.getRemaining('other')).toMatchObject({ used: 4 })
    expect(await dry.quota.getRemaining('key')).toMatchObject({ used: 10 })
  })

  test('nothing is charged to a dry run when a plain one denies', async () => {
    const dry = quotaOn(database, TEN['fixed window'], DRY)
    const plain = quotaOn(database, TEN['fixed window'])
    await dry.quota.limit('full', { rate: 10 })
    const before = await dry.rows()
    const requests = [
      { ratelimit: dry.quota, key: 'key', rate: 2 },
      { ratelimit: dry.quota, key: 'full' },
      { ratelimit: plain.quota, key: 'key', rate: 11 },
    ]
    const answer = await limitAll(requests)
    expect(answer).toMatchObject({ success: false, denied: [requests[2]] })
    expect(answer.results[1]).toMatchObject({ success: true, wouldDeny: { success: false } })
    expect(answer.results[0]).toMatchObject({ success: true, remaining: 10 })
    expect(await dry.rows()).toEqual(before)
    expect(await plain.rows()).toEqual([])
  })

  test('a dry run does the same in a transaction', async () => {
    const dry = quotaOn(database, TEN['fixed window'], DRY)
    await dry.quota.limit('full', { rate: 10 })
    const answer = await database.db.transaction((tx) =>
      limitAll([{ ratelimit: dry.quota, key: 'full' }], { tx }),
    )
    expect(answer).toMatchObject({
      success: true,
      results: [{ success: true, wouldDeny: { success: false } }],
    })
  })

  test('requests for one row are added up: all would be denied', async () => {
    const dry = quotaOn(database, TEN['fixed window'], DRY)
    const request = { ratelimit: dry.quota, key: 'key', rate: 6 }
    const { results } = await limitAll([request, request])
    for (const result of results) expect(result).toMatchObject({ success: true, wouldDeny: {} })
    expect(await dry.quota.getRemaining('key')).toMatchObject({ used: 0 })
  })

  test('calls that it would deny leave no row', async () => {
    const dry = quotaOn(database, TEN['fixed window'], DRY)
    await limitAll([
      { ratelimit: dry.quota, key: 'never', rate: 11 },
      { ratelimit: dry.quota, key: 'key' },
    ])
    expect((await counts(dry)).map((row) => Reflect.get(Object(row), 'key'))).toEqual(['key'])
  })

  test('a bucket that starts with less than it holds fills from its first check on', async () => {
    const limiter = Ratelimit.tokenBucket(1, '1h', 5, { initialTokens: 0 })
    const { clock, quota } = quotaOn(database, limiter, DRY)
    const requests = [{ ratelimit: quota, key: 'key' }]
    expect((await limitAll(requests)).results[0]).toMatchObject({ wouldDeny: { retryAfter: HOUR_MS } })
    clock.advance(HOUR_MS)
    expect((await limitAll(requests)).results[0]).not.toHaveProperty('wouldDeny')
  })
})

test('a remembered denial still lets the call pass', async () => {
  const { db, statements } = watch(database.db)
  const { clock, quota } = quotaOn(database, TEN['fixed window'], { ...DRY, db, inMemoryBlock: true })
  await quota.limit('key', { rate: 10 })
  const first = await quota.limit('key')
  expect(await quota.limit('key')).toEqual(first)
  clock.advance(7)
  const { reset } = first
  expect(await quota.limit('key')).toMatchObject({
    ...{ success: true, retryAfter: 0 },
    wouldDeny: { success: false, reset, retryAfter: reset - clock.ms },
  })
  expect(statements).toHaveLength(3)
})

test('a blocked plan lets calls pass too, and would deny forever', async () => {
  const { quota, rows } = quotaOn(database, Ratelimit.fixedWindow(0, '1d'), DRY)
  expect(await quota.limit('key')).toMatchObject({
    ...{ success: true, retryAfter: 0 },
    wouldDeny: { success: false, retryAfter: Number.POSITIVE_INFINITY },
  })
  expect(await rows()).toEqual([])
})

test('an unlimited plan denies nothing', async () => {
  const { quota } = quotaOn(database, Ratelimit.unlimited(), DRY)
  expect(await quota.limit('key', { rate: 1e9 })).not.toHaveProperty('wouldDeny')
})
