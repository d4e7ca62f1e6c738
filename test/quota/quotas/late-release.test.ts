import { describe, expect, test } from 'vitest'
import { Ratelimit, type Reservation } from '../../../src/index.ts'
import { Quota, reserveAll, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, kinds, quotaOn } from '../../support/ten.ts'

// A bucket fills by itself. An estimate that is released late is given back by the time already.

const database = useDatabase()
const buckets = kinds.filter(({ keeps }) => keeps === 'what is left')

describe.each(buckets)('$name', ({ limiter }) => {
  test('the release of 240 old estimates lets no more than twenty calls pass', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    const held: Reservation[] = []
    while (held.length < 240) {
      const reserved = await quota.reserve('key')
      if (reserved.success) held.push(reserved)
      else clock.advance(reserved.retryAfter)
    }
    let passed = 0
    for (const each of held) {
      await each.release()
      while ((await quota.limit('key')).success) passed++
    }
    expect(passed).toBeGreaterThan(5)
    expect(passed).toBeLessThanOrEqual(20)
  })

  const named = { id: 'job', expires: '900d' } as const
  test.each([
    { how: 'release', named: {}, settle: (reserved: Reservation) => reserved.release() },
    { how: 'commit', named: {}, settle: (reserved: Reservation) => reserved.commit(0) },
    { how: 'release of a name', named, settle: (reserved: Reservation) => reserved.release() },
    {
      how: 'settle',
      named,
      settle: (_: Reservation, quota: Quota) => quota.settle({ key: 'key', id: 'job' }, 0),
    },
  ])('$how gives back until the time at which the bucket is full by itself', async ({ named, settle }) => {
    for (const [laterMs, back] of [
      [-1, 4],
      [0, 0],
    ] as const) {
      const { clock, quota } = quotaOn(database, limiter)
      await quota.limit('key', { rate: 3 })
      const reserved = allowed(await quota.reserve('key', { rate: 4, ...named }))
      expect(reserved.reset).toBe(clock.ms + 7 * HOUR_MS)
      clock.ms = reserved.reset + laterMs
      await quota.limit('key', { rate: 9 })
      const { used } = await quota.getRemaining('key')
      await settle(reserved, quota)
      expect((await quota.getRemaining('key')).used).toBeCloseTo(used - back, 5)
    }
  })

  test('several limits each give back until their own time', async () => {
    const { clock, quota, prefix } = quotaOn(database, limiter)
    const slow = new Quota({
      ...{ db: database.db, clock: clock.now, prefix: `${prefix} slow`, cleanupProbability: 0 },
      limiter: Ratelimit.tokenBucket(1, '1d', 10),
    })
    const requests = [
      { ratelimit: quota, key: 'key' },
      { ratelimit: slow, key: 'key' },
    ]
    const used = async () => [(await quota.getRemaining('key')).used, (await slow.getRemaining('key')).used]
    const spent = await spend(requests, { rate: 13 })
    const reserved = await reserveAll([{ ratelimit: slow, key: 'key', rate: 2 }])
    if (!(spent.success && reserved.success)) throw new Error('the example is wrong')
    clock.advance(10 * HOUR_MS)
    await quota.limit('key', { rate: 10 })
    await spent.release()
    expect(await used()).toEqual([10, 2])
    await reserved.release()
    expect(await used()).toEqual([10, 0])
  })

  test('a cost above the estimate is charged at any time', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    clock.advance(100 * HOUR_MS)
    await reserved.commit(9)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
  })
})
