import { beforeAll, describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type Database, Ratelimit } from '../../../src/index.ts'
import { Quota, reserveAll, settle, spend } from '../../../src/quota/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'

// An estimate that was charged in a transaction, and is settled without it.

const database = useDatabase()
const CRASH = new Error('crash')
const named = { id: 'job', expires: '1h' } as const

let db: Db
beforeAll(() => {
  db = database.connect(4).db
})

interface Limits {
  readonly quota: Quota
  readonly credits: Credits<true>
}

type Settle = (actual: number, tx?: Database) => Promise<unknown>

/** Charges an estimate of 5 in the transaction, and returns how it is settled. */
type Kind = (limits: Limits, tx: Database) => Promise<Settle>

function only<T extends { readonly success: boolean }>(answer: T): Extract<T, { readonly success: true }> {
  if (!answer.success) throw new Error('It was denied.')
  return answer as Extract<T, { readonly success: true }>
}

const OF_QUOTA: Readonly<Record<string, Kind>> = {
  'a reservation': async ({ quota }, tx) => {
    const reserved = only(await quota.reserve('key', { rate: 5, tx }))
    return (actual, own) => reserved.commit(actual, { tx: own })
  },
  'a reservation with a name': async ({ quota }, tx) => {
    const reserved = only(await quota.reserve('key', { rate: 5, tx, ...named }))
    return (actual, own) => reserved.commit(actual, { tx: own })
  },
  'its name': async ({ quota }, tx) => {
    await quota.reserve('key', { rate: 5, tx, ...named })
    return (actual, own) => quota.settle({ key: 'key', id: 'job' }, actual, { tx: own })
  },
  reserveAll: async ({ quota: ratelimit }, tx) => {
    const reserved = only(await reserveAll([{ ratelimit, key: 'key', rate: 5 }], { tx }))
    return (actual, own) => reserved.commit([actual], { tx: own })
  },
  'reserveAll with a name': async ({ quota: ratelimit }, tx) => {
    const requests = [{ ratelimit, key: 'key', rate: 5 }]
    const reserved = only(await reserveAll(requests, { tx, ...named }))
    return (actual, own) => reserved.commit([actual], { tx: own })
  },
  settleAll: async ({ quota: ratelimit }, tx) => {
    const requests = [{ ratelimit, key: 'key' }]
    await reserveAll([{ ratelimit, key: 'key', rate: 5 }], { tx, ...named })
    return (actual, own) => settle(requests, 'job', { actual: [actual], tx: own })
  },
  spend: async ({ quota: ratelimit }, tx) => {
    const spent = only(await spend([{ ratelimit, key: 'key' }], { rate: 5, tx }))
    return (actual, own) => spent.commit(actual, { tx: own })
  },
  'spend with a name': async ({ quota: ratelimit }, tx) => {
    const spent = only(await spend([{ ratelimit, key: 'key' }], { rate: 5, tx, ...named }))
    return (actual, own) => spent.commit(actual, { tx: own })
  },
  settleSpent: async ({ quota: ratelimit }, tx) => {
    await spend([{ ratelimit, key: 'key' }], { rate: 5, tx, ...named })
    return (actual, own) => settle([{ ratelimit, key: 'key' }], 'job', { actual, tx: own })
  },
}

const OF_CREDITS: Readonly<Record<string, Kind>> = {
  'an estimate on credits': async ({ credits }, tx) => {
    const reserved = only(await credits.reserve('key', { rate: 5, tx }))
    return (actual, own) => reserved.commit(actual, { tx: own })
  },
  'reserveAll with credits': async ({ credits: ratelimit }, tx) => {
    const reserved = only(await reserveAll([{ ratelimit, key: 'key', rate: 5 }], { tx }))
    return (actual, own) => reserved.commit([actual], { tx: own })
  },
  'spend with credits': async ({ credits: ratelimit }, tx) => {
    const spent = only(await spend([{ ratelimit, key: 'key' }], { rate: 5, tx }))
    return (actual, own) => spent.commit(actual, { tx: own })
  },
}

const kinds = [...Object.entries(OF_QUOTA), ...Object.entries(OF_CREDITS)]

describe.each(kinds)('%s', (name, kind) => {
  const isOfCredits = name in OF_CREDITS

  /** Limits of which `used` was used before. A key without use has no row. */
  async function limitsOf(what: string, used: number) {
    const prefix = `${what} ${name}`
    const common = { db, durable: true, cleanupProbability: 0, timeout: false } as const
    const quota = new Quota({ ...common, limiter: Ratelimit.fixedWindow(100, '1h'), prefix })
    const credits = new Credits({
      ...common,
      dated: true,
      prefix: `${prefix}, credits`,
    })
    await credits.grant('key', 100, { id: 'grant' })
    if (used > 0)
      await Promise.all([quota.limit('key', { rate: used }), credits.limit('key', { rate: used })])
    const usedNow = async () => (await (isOfCredits ? credits : quota).getRemaining('key')).used
    return { quota, credits, usedNow }
  }

  test.each([0, 7])(
    'is not settled outside of its open transaction, and can be after it, used %i',
    async (used) => {
      const limits = await limitsOf(`open ${used}`, used)
      let settleWith: Settle = () => expect.fail()
      await db.transaction(async (tx) => {
        settleWith = await kind(limits, tx)
        for (const actual of [3, 0, 8, 5]) {
          await expect(settleWith(actual)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
        }
        await db.transaction(async (other) => {
          await expect(settleWith(3, other)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
        })
      })
      expect(await limits.usedNow()).toBe(used + 5)
      await settleWith(3)
      expect(await limits.usedNow()).toBe(used + 3)
    },
  )

  test('is settled in its transaction, also in a savepoint of it', async () => {
    const limits = await limitsOf('in', 7)
    await db.transaction(async (tx) => {
      const settleWith = await kind(limits, tx)
      await settleWith(3, tx)
    })
    expect(await limits.usedNow()).toBe(10)
    const deeper = await limitsOf('deeper', 7)
    await db.transaction(async (tx) => {
      const settleWith = await kind(deeper, tx)
      await tx.transaction((savepoint) => settleWith(3, savepoint))
    })
    expect(await deeper.usedNow()).toBe(10)
  })

  test.each([0, 7])(
    'is not there after a rollback, and settling it changes nothing, used %i',
    async (used) => {
      const limits = await limitsOf(`undone ${used}`, used)
      let settleWith: Settle = () => expect.fail()
      await undone(db, async (tx) => {
        settleWith = await kind(limits, tx)
      })
      for (const actual of [3, 8])
        await expect(settleWith(actual)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
      await db.transaction(async (tx) => {
        await expect(settleWith(3, tx)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
      })
      expect(await limits.usedNow()).toBe(used)
    },
  )
})

test('a name that was taken before is not settled outside of a transaction that holds its rows', async () => {
  const prefix = 'held by a repeat'
  const limiter = Ratelimit.fixedWindow(100, '1h')
  const quota = new Quota({ durable: false, timeout: false, db, limiter, prefix, cleanupProbability: 0 })
  await quota.reserve('key', { rate: 5, ...named })
  let repeated: Awaited<ReturnType<typeof quota.reserve>> | undefined
  await db
    .transaction(async (tx) => {
      repeated = await quota.reserve('key', { rate: 5, tx, ...named })
      await expect(only(repeated).commit(3)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
      throw CRASH
    })
    .catch((error: unknown) => expect(error).toBe(CRASH))
  // The first call has reserved it, whatever became of the transaction.
  expect(await only(repeated ?? expect.fail()).commit(3)).toMatchObject({ success: true, returned: 2 })
})

test('an estimate that was settled on a server that was replaced counts as settled', async () => {
  const quota = new Quota({ db, limiter: Ratelimit.fixedWindow(100, '1h'), prefix: 'replaced' })
  const reserved = only(await quota.reserve('key', { rate: 5 }))
  await db.transaction(async (tx) => {
    // Its transactions have larger ids than those of the new server.
    const execute: Database['execute'] = async (query) => {
      const asksForId = JSON.stringify(query).includes('pg_current_xact_id()::text as id')
      return asksForId ? { rows: [{ id: '9007199254740991' }] } : tx.execute(query)
    }
    const ahead = new Proxy(tx, {
      get: (own, name) => (name === 'execute' ? execute : Reflect.get(own, name, own)),
    })
    await reserved.commit(3, { tx: ahead })
  })
  await expect(reserved.commit(3)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 3 })
})
