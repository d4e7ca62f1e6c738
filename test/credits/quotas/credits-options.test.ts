import { countDenials } from 'drizzle-ratelimit/denials'
import { denied } from 'drizzle-ratelimit/reports'
import { describe, expect, test, vi } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type LimitResult, limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// Options that credits have as other limits have them.

const database = useDatabase()

let prefixes = 0

function creditsWith(options: object = {}) {
  const clock = new TestClock()
  const prefix = `credits with ${++prefixes}`
  const config = { db: database.db, dated: true, prefix, clock: clock.now } as const
  return { prefix, clock, credits: new Credits({ ...config, cleanupProbability: 0, ...options }) }
}

describe('onError', () => {
  /** Credits with 10 units, whose database can be away, and what is used of them. */
  async function awayWith(options: object) {
    let isAway = false
    const cause = Object.assign(new Error('connect ECONNREFUSED'), {
      code: 'ECONNREFUSED',
      syscall: 'connect',
    })
    const { db } = watch(database.db, () => {
      if (isAway) throw new Error('Failed query', { cause })
    })
    const { credits, clock } = creditsWith({ db, ...options })
    await credits.grant('key', 10, { id: 'a' })
    return {
      ...{ db, credits, clock, used: async () => (await credits.getRemaining('key')).used },
      leave: () => {
        isAway = true
      },
      comeBack: () => {
        isAway = false
      },
    }
  }

  const limits = [
    ['limit', (credits: Credits<true>) => credits.limit('key', { rate: 3 })],
    ['limit by force', (credits: Credits<true>) => credits.limit('key', { rate: 3, force: true })],
    [
      'limit once',
      (credits: Credits<true>) => credits.limit('key', { rate: 3, once: { id: 'event', for: '1d' } }),
    ],
    ['a refund', (credits: Credits<true>) => credits.limit('key', { rate: -3 })],
  ] as const

  test.each(limits)('answers %s during an outage, and charges nothing', async (_, limit) => {
    const onDegraded = vi.fn()
    const allows = await awayWith({ onError: 'allow', onDegraded })
    const denies = await awayWith({ onError: 'deny' })
    allows.leave()
    denies.leave()
    const [now, common] = [allows.clock.ms, { limit: Infinity, remaining: 0, degraded: true }]
    expect(await limit(allows.credits)).toEqual({ success: true, ...common, reset: now, retryAfter: 0 })
    expect(onDegraded).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ code: 'UNREACHABLE' }))
    const denial = { success: false, ...common, reset: now + 1_000, retryAfter: 1_000 }
    expect(await limit(denies.credits)).toEqual(denial)
    allows.comeBack()
    denies.comeBack()
    expect([await allows.used(), await denies.used()]).toEqual([0, 0])
  })

  test('says what a call with atLeast got, and lets a list pass', async () => {
    const { credits, leave } = await awayWith({ onError: 'allow' })
    leave()
    const answer = await credits.limit('key', { rate: 3, atLeast: 1 })
    expect(answer).toMatchObject({ success: true, degraded: true, granted: 3 })
    const list = [{ ratelimit: credits, key: 'key', rate: 3 }]
    expect(await limitAll(list)).toMatchObject({ success: true, results: [{ degraded: true }] })
    expect(await credits.limit('key', { rate: 3 })).toMatchObject({ success: true, degraded: true })
  })

  test('lets an estimate pass, whose cost is charged afterwards', async () => {
    const { credits, leave, comeBack, used } = await awayWith({ onError: 'allow' })
    leave()
    const reserved = await credits.reserve('key', { rate: 5 })
    if (!reserved.success) throw new Error('denied')
    expect(reserved).toMatchObject({ degraded: true })
    await expect(reserved.commit(3)).rejects.toMatchObject({ code: 'UNREACHABLE' })
    comeBack()
    expect(await used()).toBe(0)
    expect(await reserved.commit(3)).toMatchObject({ success: true, remaining: 7 })
    expect(await used()).toBe(3)
  })

  test('does not hide an outage from a transaction, a grant or an estimate with a name', async () => {
    const { db, credits, leave } = await awayWith({ onError: 'allow' })
    const unreachable = { code: 'UNREACHABLE' }
    await undone(db, async (tx) => {
      leave()
      await expect(credits.limit('key', { tx })).rejects.toBeInstanceOf(Error)
    })
    await expect(credits.grant('key', 1, { id: 'b' })).rejects.toMatchObject(unreachable)
    const named = credits.reserve('key', { rate: 1, id: 'job', expires: '1h' })
    await expect(named).rejects.toMatchObject(unreachable)
  })
})

describe('denials', () => {
  test('are counted by key, of every way to ask, and allowed calls are not', async () => {
    const handed: Promise<unknown>[] = []
    const waitUntil = (work: Promise<unknown>) => void handed.push(work)
    const { credits, prefix, clock } = creditsWith({ use: [countDenials({ every: 1 })], waitUntil })
    await credits.grant('rich', 100, { id: 'a' })
    for (const key of ['poor', 'rich']) {
      await Promise.all([credits.limit(key), credits.limit(key, { rate: 2 })])
      await credits.limit(key, { atLeast: 1 })
      await credits.reserve(key, { rate: 3 })
      await limitAll([{ ratelimit: credits, key }])
      await database.db.transaction((tx) => credits.limit(key, { tx }))
    }
    await credits.close()
    for (const each of handed) await each
    const found = await denied({ db: database.db, prefix, durable: true, clock: clock.now })
    expect(found).toMatchObject([{ key: 'poor', denials: 6 }])
  })
})

describe('dryRun', () => {
  /** What a dry run says where plain credits give this answer. */
  function dryOf(plain: LimitResult, granted?: number): LimitResult {
    if (plain.success) return plain
    const passed = granted === undefined ? {} : { granted }
    return { ...plain, success: true, retryAfter: 0, wouldDeny: plain, ...passed }
  }

  /** A dry run and plain credits, which get the same grants: 5 until tomorrow, and 5 without an end. */
  async function both(options: object = {}) {
    const dry = creditsWith({ ...options, dryRun: true })
    const plain = creditsWith({ ...options, clock: dry.clock.now })
    for (const { credits } of [dry, plain]) {
      await credits.grant('key', 5, { id: 'a', expires: '1d' })
      await credits.grant('key', 5, { id: 'b' })
    }
    const expectEqual = async () => {
      expect(await dry.credits.grants('key')).toEqual(await plain.credits.grants('key'))
      expect(await dry.credits.getRemaining('key')).toEqual(await plain.credits.getRemaining('key'))
    }
    return { dry, plain, expectEqual }
  }

  function written({ prefix }: { readonly prefix: string }): Promise<unknown[]> {
    return database.rows(
      'select xmin::text, ctid::text, to_jsonb(stored) from rate_limit_durable stored where prefix like $1',
      [`%${prefix}%`],
    )
  }

  const ways = [
    ['alone', (credits: Credits<true>, rate: number) => credits.limit('key', { rate })],
    [
      'in a transaction',
      (credits: Credits<true>, rate: number) =>
        database.db.transaction((tx) => credits.limit('key', { rate, tx })),
    ],
    [
      'in a list',
      async (credits: Credits<true>, rate: number) =>
        (await limitAll([{ ratelimit: credits, key: 'key', rate }])).results[0] as LimitResult,
    ],
  ] as const

  test.each(ways)(
    '%s: lets all calls pass, marks those it would deny, charges the others',
    async (_, limit) => {
      const { dry, plain, expectEqual } = await both()
      let denials = 0
      for (const rate of [4, 11, 7, 3, 0, 4, -2, 6, 5, 1]) {
        const answer = await limit(plain.credits, rate)
        if (!answer.success) denials++
        const before = await written(dry)
        expect(await limit(dry.credits, rate)).toEqual(dryOf(answer))
        if (!answer.success) expect(await written(dry)).toEqual(before)
        await expectEqual()
      }
      expect(denials).toBeGreaterThan(2)
    },
  )

  test('with atLeast it passes with the whole rate, and force makes a debt as ever', async () => {
    const { dry, plain, expectEqual } = await both()
    for (const [rate, atLeast] of [
      [12, 11],
      [12, 8],
      [3, 1],
    ] as const) {
      const answer = await plain.credits.limit('key', { rate, atLeast })
      expect(await dry.credits.limit('key', { rate, atLeast })).toEqual(dryOf(answer, rate))
      await expectEqual()
    }
    const forced = await plain.credits.limit('key', { rate: 2, force: true })
    expect(await dry.credits.limit('key', { rate: 2, force: true })).toEqual(forced)
    await expectEqual()
  })

  test('in a list it stops none of the others, which are charged or denied by themselves', async () => {
    const { dry } = await both()
    const api = new Quota({
      ...{ db: database.db, limiter: Ratelimit.fixedWindow(2, '1h'), prefix: `${dry.prefix} api` },
      ...{ clock: dry.clock.now, cleanupProbability: 0 },
    })
    const limit = (rate: number) =>
      limitAll([
        { ratelimit: api, key: 'key' },
        { ratelimit: dry.credits, key: 'key', rate },
      ])
    const wouldDeny = { success: false, remaining: 10, retryAfter: Infinity }
    expect(await limit(11)).toMatchObject({ success: true, retryAfter: 0, results: [{}, { wouldDeny }] })
    expect(await limit(4)).toMatchObject({ success: true, results: [{ remaining: 0 }, { remaining: 6 }] })
    const denied = { success: false, retryAfter: 3_600_000 }
    expect(await limit(4)).toMatchObject({ ...denied, results: [denied, { success: true, remaining: 6 }] })
    expect(await limit(11)).toMatchObject({ ...denied, results: [denied, { success: true, wouldDeny: {} }] })
    expect((await dry.credits.getRemaining('key')).used).toBe(4)
  })

  test('an estimate that it lets pass is settled for nothing, and others are settled as ever', async () => {
    const { dry } = await both()
    const { credits } = dry
    const name = { id: 'job', expires: '1h' } as const
    for (const given of [{}, name]) {
      const passed = await credits.reserve('key', { rate: 11, ...given })
      expect(passed).toMatchObject({ success: true, wouldDeny: { success: false } })
      if (passed.success) expect(await passed.commit(12)).toMatchObject({ success: true, remaining: 10 })
      expect((await credits.getRemaining('key')).used).toBe(0)
    }
    expect(await credits.settle({ key: 'key', id: 'job' }, 12)).toMatchObject({ repeated: true })
    const reserved = await credits.reserve('key', { rate: 8, id: 'other', expires: '1h' })
    expect(reserved).toMatchObject({ success: true, remaining: 2 })
    expect(await credits.settle({ key: 'key', id: 'other' }, 7)).toMatchObject({ returned: 1, remaining: 3 })
  })

  test('a denial that it would make is counted', async () => {
    const { credits, prefix, clock } = creditsWith({ dryRun: true, use: [countDenials()] })
    await credits.limit('poor')
    await credits.limit('poor', { atLeast: 1 })
    await credits.close()
    const found = await denied({ db: database.db, prefix, durable: true, clock: clock.now })
    expect(found).toMatchObject([{ key: 'poor', denials: 2 }])
  })

  test('spend cannot be tried', async () => {
    const { dry } = await both()
    const spent = spend([{ ratelimit: dry.credits, key: 'key' }], { rate: 1 })
    await expect(spent).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})
