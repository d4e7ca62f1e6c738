import { expect, test } from 'vitest'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { Quota, reserveAll, settle, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

// A cost under a plan of another kind would replace the row, with the credits of a balance.

const database = useDatabase()
const NAME = { id: 'job', expires: '1h' } as const

type Settle = (actual: number, limiter: Limiter) => Promise<unknown>

/** Each way to settle an estimate of 4. */
const WAYS: Readonly<Record<string, (quota: Quota) => Promise<Settle>>> = {
  commit: async (quota) => {
    const estimate = allowed(await quota.reserve('key', { rate: 4 }))
    return (actual, limiter) => estimate.commit(actual, { limiter })
  },
  'commit of a name': async (quota) => {
    const estimate = allowed(await quota.reserve('key', { rate: 4, ...NAME }))
    return (actual, limiter) => estimate.commit(actual, { limiter })
  },
  settle: async (quota) => {
    allowed(await quota.reserve('key', { rate: 4, ...NAME }))
    return (actual, limiter) => quota.settle({ key: 'key', id: 'job' }, actual, { limiter })
  },
  'commit of several': async (ratelimit) => {
    const estimates = allowed(await reserveAll([{ ratelimit, key: 'key', rate: 4 }]))
    return (actual, limiter) => estimates.commit([actual], { limiters: [limiter] })
  },
  settleAll: async (ratelimit) => {
    allowed(await reserveAll([{ ratelimit, key: 'key', rate: 4 }], NAME))
    return (actual, limiter) => settle([{ ratelimit, key: 'key', limiter }], 'job', { actual: [actual] })
  },
  'commit of what was spent': async (ratelimit) => {
    const spent = allowed(await spend([{ ratelimit, key: 'key' }], { rate: 4 }))
    return (actual, limiter) => spent.commit(actual, { limiters: [limiter] })
  },
  'commit of what was spent under a name': async (ratelimit) => {
    const spent = allowed(await spend([{ ratelimit, key: 'key' }], { rate: 4, ...NAME }))
    return (actual, limiter) => spent.commit(actual, { limiters: [limiter] })
  },
  settleSpent: async (ratelimit) => {
    allowed(await spend([{ ratelimit, key: 'key' }], { rate: 4, ...NAME }))
    return (actual, limiter) => settle([{ ratelimit, key: 'key', limiter }], 'job', { actual })
  },
}

function allowed<T extends { readonly success: boolean }>(answer: T): Extract<T, { readonly success: true }> {
  if (!answer.success) throw new Error('denied')
  return answer as Extract<T, { readonly success: true }>
}

let prefixes = 0

test.each(Object.entries(WAYS))('%s refuses it before any SQL', async (_, reserve) => {
  for (const [own, other] of [
    [Ratelimit.balance(), Ratelimit.fixedWindow(10, '1h')],
    [Ratelimit.fixedWindow(10, '1h'), Ratelimit.balance()],
  ] as const) {
    const { db, statements } = watch(database.db)
    const prefix = `another kind ${++prefixes}`
    const quota = new Quota({ db, limiter: own, prefix, durable: true, cleanupProbability: 0 })
    if (own.limit === Infinity) await quota.grant('key', 10)
    const settleWith = await reserve(quota)
    const before = statements.length
    for (const actual of [0, 4, 9])
      await expect(settleWith(actual, other)).rejects.toMatchObject({ code: 'INVALID_LIMIT' })
    expect(statements.length).toBe(before)
    expect(await quota.getRemaining('key')).toMatchObject({ limit: 10, used: 4 })
    await settleWith(9, own)
    expect(await quota.getRemaining('key')).toMatchObject({ limit: 10, used: 9 })
  }
})
