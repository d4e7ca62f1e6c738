import { block, blocks } from 'drizzle-ratelimit/lockout'
import { beforeEach, expect, test, vi } from 'vitest'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit, type Reservation } from '../../../src/index.ts'
import { Quota, type QuotaConfig, settle, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import '../../support/loaded.ts'
import { allowed } from '../../support/allowed.ts'
import { fakeTime, ownTimers, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

// `timeout` bounds a call, however many statements it takes.

const database = useDatabase()
const WINDOW = Ratelimit.fixedWindow(10, '1h')
const NAME = { id: 'job', expires: '1d' } as const
let prefix = 0

// The timers are the test's; the driver keeps its own.
beforeEach(fakeTime)
useFakeTime()

const nextTurn = () => new Promise(setImmediate)

interface Setup<L> {
  readonly prefix: string
  readonly slowDb: Database
  /** The limiter whose every statement takes 800 ms, with a timeout of a second. */
  readonly slow: L
  /** The same without delay. */
  readonly quick: L
}

/** A call, made ready without delay. */
type Ready<L> = (limiters: Setup<L>) => Promise<() => Promise<unknown>>

function onCredits(begin: (credits: Credits<true>) => Promise<unknown>): Ready<Credits<true>> {
  return async ({ slow, quick }) => {
    await quick.grant('key', 10, { id: 'first' })
    await quick.limit('key', { rate: 4 })
    return () => begin(slow)
  }
}

const creditCalls: Readonly<Record<string, Ready<Credits<true>>>> = {
  once: onCredits((credits) => credits.limit('key', { once: { id: 'a', for: '1d' } })),
  force: onCredits((credits) => credits.limit('key', { rate: 20, force: true })),
  'a refund': onCredits((credits) => credits.limit('key', { rate: -2 })),
  reserve: onCredits((credits) => credits.reserve('key', { once: { id: 'a', for: '1d' } })),
  'reserve with a name': onCredits((credits) => credits.reserve('key', { id: 'job', expires: '1h' })),
  settle: async ({ slow, quick }) => {
    await quick.grant('key', 10, { id: 'first' })
    await quick.reserve('key', { rate: 4, id: 'job', expires: '1h' })
    return () => slow.settle({ key: 'key', id: 'job' }, 2)
  },
  grant: onCredits((credits) => credits.grant('key', 1, { id: 'first' })),
  voidGrant: onCredits((credits) => credits.voidGrant('key', 'first')),
  limitAll: async ({ slow, quick, prefix: same, slowDb: db }) => {
    await quick.grant('key', 10, { id: 'first' })
    const limit = new Quota({ durable: false, db, limiter: WINDOW, prefix: `${same} too` })
    return () =>
      limitAll([
        { ratelimit: slow, key: 'key' },
        { ratelimit: limit, key: 'key' },
      ])
  },
  spend: async ({ slow, quick, prefix: same, slowDb: db }) => {
    await quick.grant('key', 10, { id: 'first' })
    const limit = new Quota({ durable: false, db, limiter: WINDOW, prefix: `${same} too` })
    const requests = [
      { ratelimit: limit, key: 'key' },
      { ratelimit: slow, key: 'key' },
    ]
    return () => spend(requests, { rate: 12 })
  },
}

/** Reserves 4 in a transaction, which commits. */
async function reservedIn({ slow }: Pick<Setup<Quota>, 'slow'>): Promise<Reservation> {
  const reserved = allowed(await database.db.transaction((tx) => slow.reserve('key', { rate: 4, tx })))
  return reserved
}

const windowCalls: Readonly<Record<string, Ready<Quota>>> = {
  'commit after the transaction that reserved': async (setup) => {
    const reserved = await reservedIn(setup)
    return () => reserved.commit(3)
  },
  'commit after a transaction that was rolled back': async (setup) => {
    const reserved = await reservedIn(setup)
    const rolledBack = database.db.transaction(async (tx) => {
      await reserved.commit(3, { tx })
      tx.rollback()
    })
    await rolledBack.catch(() => {})
    return () => reserved.commit(3)
  },
  'settle in another process': async ({ slow, quick }) => {
    await quick.reserve('key', { rate: 4, ...NAME })
    return () => slow.settle({ key: 'key', id: 'job' }, 3)
  },
  'settleSpent in another process': async ({ slow, quick }) => {
    await spend([{ ratelimit: quick, key: 'key' }], { rate: 4, ...NAME })
    return () => settle([{ ratelimit: slow, key: 'key' }], 'job', { actual: 3 })
  },
}

const blockedCalls: Readonly<Record<string, Ready<Quota>>> = {
  block: async ({ slow, quick }) => {
    await block(quick, 'key', '1h')
    return () => block(slow, 'key', '2h')
  },
  getRemaining:
    async ({ slow }) =>
    () =>
      slow.getRemaining('key'),
}

/** How long the call takes until it fails, if each statement takes 800 ms. */
async function failsAfter<L>(make: (config: Partial<QuotaConfig>) => L, ready: Ready<L>): Promise<number> {
  const gates: (() => void)[] = []
  const slowly = watch(database.db, () => new Promise<void>((resolve) => gates.push(resolve)))
  const common = { prefix: `deadline ${++prefix}`, cleanupProbability: 0 }
  const slow = make({ ...common, db: slowly.db, timeout: 1_000 })
  const quick = make({ ...common, db: database.db })
  const begin = await ready({ slow, quick, prefix: common.prefix, slowDb: slowly.db })
  let failedAt: number | undefined
  const begunAt = performance.now()
  const call = begin().catch((error: unknown) => {
    failedAt = performance.now()
    return error
  })
  let hasEnded = false
  call.then(() => {
    hasEnded = true
  })
  while (!hasEnded) {
    while (!hasEnded && gates.length === 0) await nextTurn()
    for (let passed = 0; passed < 800 && !hasEnded; passed += 100) {
      vi.advanceTimersByTime(100)
      for (let turn = 0; turn < 5; turn++) await nextTurn()
    }
    gates.shift()?.()
  }
  for (const open of gates) open()
  expect(await call).toMatchObject({ code: expect.stringMatching(/TIMEOUT|OUTCOME_UNKNOWN/) })
  expect(ownTimers()).toEqual([])
  return (failedAt ?? Number.POSITIVE_INFINITY) - begunAt
}

test.each(Object.entries(creditCalls))('%s of credits ends by its timeout', async (_, ready) => {
  const make = (config: object) =>
    new Credits({ durable: false, ...config, dated: true } as CreditsConfig<true>)
  expect(await failsAfter(make, ready)).toBe(1_000)
})

test.each(Object.entries(windowCalls))('%s ends by its timeout', async (_, ready) => {
  const make = (config: object) => new Quota({ durable: false, ...config, limiter: WINDOW } as QuotaConfig)
  expect(await failsAfter(make, ready)).toBe(1_000)
})

test.each(Object.entries(blockedCalls))('%s with blocks ends by its timeout', async (_, ready) => {
  const make = (config: Partial<QuotaConfig>) =>
    new Quota({ durable: false, ...config, limiter: WINDOW, use: [blocks()] } as QuotaConfig)
  expect(await failsAfter(make, ready)).toBe(1_000)
})
