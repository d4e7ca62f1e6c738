import { describe, expect, test } from 'vitest'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { reserveAll, settle, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

// A cost under a plan would replace the row, with the credits.

const database = useDatabase()
const NAME = { id: 'job', expires: '1h' } as const

/** The type of a plan is unknown, because credits take none. */
type Settle = (actual: number, plan: { readonly limiter?: Limiter }) => Promise<unknown>

/** Each way to settle an estimate of 4. */
const WAYS: Readonly<Record<string, (credits: Credits<boolean>) => Promise<Settle>>> = {
  commit: async (credits) => {
    const estimate = allowed(await credits.reserve('key', { rate: 4 }))
    return (actual, plan) => estimate.commit(actual, plan as object)
  },
  'commit of a name': async (credits) => {
    const estimate = allowed(await credits.reserve('key', { rate: 4, ...NAME }))
    return (actual, plan) => estimate.commit(actual, plan as object)
  },
  settle: async (credits) => {
    allowed(await credits.reserve('key', { rate: 4, ...NAME }))
    return (actual, plan) => credits.settle({ key: 'key', id: 'job' }, actual, plan as object)
  },
  'commit of several': async (credits) => {
    const estimates = allowed(await reserveAll([{ ratelimit: credits, key: 'key', rate: 4 }]))
    return (actual, plan) => estimates.commit([actual], { limiters: [plan.limiter] })
  },
  settleAll: async (credits) => {
    allowed(await reserveAll([{ ratelimit: credits, key: 'key', rate: 4 }], NAME))
    return (actual, plan) =>
      settle([{ ratelimit: credits, key: 'key', ...(plan as object) }], 'job', { actual: [actual] })
  },
  'commit of what was spent': async (credits) => {
    const spent = allowed(await spend([{ ratelimit: credits, key: 'key' }], { rate: 4 }))
    return (actual, plan) => spent.commit(actual, { limiters: [plan.limiter] })
  },
  'commit of what was spent under a name': async (credits) => {
    const spent = allowed(await spend([{ ratelimit: credits, key: 'key' }], { rate: 4, ...NAME }))
    return (actual, plan) => spent.commit(actual, { limiters: [plan.limiter] })
  },
  settleSpent: async (credits) => {
    allowed(await spend([{ ratelimit: credits, key: 'key' }], { rate: 4, ...NAME }))
    return (actual, plan) =>
      settle([{ ratelimit: credits, key: 'key', ...(plan as object) }], 'job', { actual })
  },
}

let prefixes = 0

describe.each([
  ['undated', {}],
  ['dated', { dated: true }],
])('%s credits', (name, options) => {
  test.each(Object.entries(WAYS))('%s refuses it before any SQL', async (_, reserve) => {
    const { db, statements } = watch(database.db)
    const prefix = `${name}, without plans ${++prefixes}`
    const config = { db, prefix, cleanupProbability: 0, ...options } as CreditsConfig
    const credits: Credits<boolean> = new Credits(config)
    await credits.grant('key', 10, (name === 'dated' ? { id: 'a' } : {}) as { id: string })
    const settleWith = await reserve(credits)
    const before = statements.length
    for (const actual of [0, 4, 9]) {
      const limiter = Ratelimit.fixedWindow(10, '1h')
      await expect(settleWith(actual, { limiter })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    expect(statements.length).toBe(before)
    expect(await credits.getRemaining('key')).toMatchObject({ limit: 10, used: 4 })
    await settleWith(9, {})
    expect(await credits.getRemaining('key')).toMatchObject({ limit: 10, used: 9 })
  })
})
