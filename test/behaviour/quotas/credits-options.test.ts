import { describe, expect, test, vi } from 'vitest'
import { denied, Ratelimit } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { UNDO } from './ten.ts'

// Options that credits have as other limits have them.

const database = useDatabase()

let prefixes = 0

function creditsWith(options: object = {}) {
  const clock = new TestClock()
  const prefix = `credits with ${++prefixes}`
  const config = { db: database.db, limiter: Ratelimit.credits(), prefix, clock: clock.now, durable: true }
  return { prefix, clock, credits: new Ratelimit({ ...config, cleanupProbability: 0, ...options }) }
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
    ['limit', (credits: Ratelimit<'credits'>) => credits.limit('key', { rate: 3 })],
    ['limit by force', (credits: Ratelimit<'credits'>) => credits.limit('key', { rate: 3, force: true })],
    [
      'limit once',
      (credits: Ratelimit<'credits'>) => credits.limit('key', { rate: 3, once: { id: 'event', for: '1d' } }),
    ],
    ['a refund', (credits: Ratelimit<'credits'>) => credits.limit('key', { rate: -3 })],
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
    expect(await Ratelimit.limitAll(list)).toMatchObject({ success: true, results: [{ degraded: true }] })
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
    const joined = db.transaction(async (tx) => {
      leave()
      await expect(credits.limit('key', { tx })).rejects.toBeInstanceOf(Error)
      throw UNDO
    })
    await expect(joined).rejects.toThrow()
    await expect(credits.grant('key', 1, { id: 'b' })).rejects.toMatchObject(unreachable)
    const named = credits.reserve('key', { rate: 1, id: 'job', expires: '1h' })
    await expect(named).rejects.toMatchObject(unreachable)
  })
})

describe('denials', () => {
  test('are counted by key, of every way to ask, and allowed calls are not', async () => {
    const handed: Promise<unknown>[] = []
    const waitUntil = (work: Promise<unknown>) => void handed.push(work)
    const { credits, prefix, clock } = creditsWith({ denials: { every: 1 }, waitUntil })
    await credits.grant('rich', 100, { id: 'a' })
    for (const key of ['poor', 'rich']) {
      await Promise.all([credits.limit(key), credits.limit(key, { rate: 2 })])
      await credits.limit(key, { atLeast: 1 })
      await credits.reserve(key, { rate: 3 })
      await Ratelimit.limitAll([{ ratelimit: credits, key }])
      await database.db.transaction((tx) => credits.limit(key, { tx }))
    }
    await credits.close()
    for (const each of handed) await each
    const found = await denied(database.db, { prefix, durable: true, clock: clock.now })
    expect(found).toMatchObject([{ key: 'poor', denials: 6 }])
  })
})
