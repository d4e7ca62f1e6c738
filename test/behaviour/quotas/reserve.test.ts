import { sql } from 'drizzle-orm'
import { describe, expect, test, vi } from 'vitest'
import { type Allowed, Ratelimit, type Reservation } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { uncounted } from '../../support/limits.ts'
import { firstFrom, Model } from '../../support/model.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { stored } from '../../support/stored.ts'
import { HOUR_MS, JANUARY, type Kind, kinds, oneOfEachKind, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const settlings = [
  { how: 'commit', settle: (reserved: Reservation) => reserved.commit(1) },
  { how: 'release', settle: (reserved: Reservation) => reserved.release() },
]

describe.each(kinds)('$name', ({ limiter }) => {
  test('the estimate is charged at once', async () => {
    const { quota } = quotaOn(database, limiter)
    const plain = await quota.limit('plain', { rate: 4 })
    expect(await quota.reserve('key', { rate: 4 })).toMatchObject(plain)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4, remaining: 6 })
  })

  test.each([
    { actual: 9, used: 9, remaining: 1 },
    { actual: 4, used: 4, remaining: 6 },
    { actual: 1, used: 1, remaining: 9 },
    { actual: 0, used: 0, remaining: 10 },
    { actual: 13, used: 13, remaining: 0 },
  ])('a commit of $actual makes it the cost', async ({ actual, used, remaining }) => {
    const { quota } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    expect(await reserved.commit(actual)).toMatchObject({
      success: true,
      limit: 10,
      remaining,
      retryAfter: 0,
    })
    expect(await quota.getRemaining('key')).toMatchObject({ used, remaining })
  })

  test('a commit is never denied, and its type says so', async () => {
    const { quota } = quotaOn(database, limiter)
    const [one, other] = [await quota.reserve('key', { rate: 5 }), await quota.reserve('key', { rate: 5 })]
    const committed: Allowed = await allowed(one).commit(1000)
    const released: Allowed = await allowed(other).release()
    expect([committed, released]).toMatchObject([
      { success: true, remaining: 0, retryAfter: 0 },
      { success: true, remaining: 0, retryAfter: 0 },
    ])
  })

  test('a release gives all of it back, and the use of others stays', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 3 })
    const reserved = allowed(await quota.reserve('key', { rate: 7 }))
    expect(await reserved.release()).toMatchObject({ success: true, remaining: 7 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 3, remaining: 7 })
  })

  test('a difference is charged even with nothing left', async () => {
    const { quota } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    await quota.limit('key', { rate: 6 })
    expect(await reserved.commit(10)).toMatchObject({ success: true, remaining: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 16 })
  })

  test('several reservations at once are each settled by themselves', async () => {
    const { quota } = quotaOn(database, limiter)
    const all = await Promise.all([3, 3, 3].map((rate) => quota.reserve('key', { rate })))
    await Promise.all(all.map((reserved, i) => allowed(reserved).commit(i)))
    expect(await quota.getRemaining('key')).toMatchObject({ used: 3 })
  })

  test('a denied reservation has nothing to settle and costs nothing', async () => {
    const { quota, rows } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 7 })
    const before = await rows()
    const plain = await quota.limit('key', { rate: 4 })
    const reserved = await quota.reserve('key', { rate: 4 })
    expect(reserved).toEqual(plain)
    expect(reserved).not.toHaveProperty('release')
    // @ts-expect-error: what may be denied cannot be settled before one has looked.
    expect(reserved.commit).toBe(undefined)
    expect(await rows()).toEqual(before)
  })

  test('a reservation in a transaction is charged and settled with it', async () => {
    const { quota } = quotaOn(database, limiter)
    await database.db.transaction(async (tx) => {
      const watched = watch(tx)
      const joined = watched.db
      const reserved = allowed(await quota.reserve('key', { rate: 4, tx: joined }))
      await reserved.commit(6, { tx: joined })
      const other = allowed(await quota.reserve('key', { rate: 2, tx: joined }))
      await other.release({ tx: joined })
      // The first finds no row, and each reservation asks for the id of the transaction.
      expect(watched.statements).toHaveLength(1 + 4 + 2)
    })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
  })

  test('a reservation of a transaction is settled outside of it', async () => {
    const { quota } = quotaOn(database, limiter)
    const reserved = await database.db.transaction((tx) => quota.reserve('key', { rate: 4, tx }))
    await allowed(reserved).commit(1)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
  })

  test('after a rollback of its settling the estimate stays charged and may be settled', async () => {
    const { quota } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    await undone(database.db, async (tx) => {
      await reserved.commit(9, { tx })
      expect(await quota.getRemaining('key', { tx })).toMatchObject({ used: 9 })
    })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
    await database.db.transaction((tx) => reserved.commit(9, { tx }))
    expect(await quota.getRemaining('key')).toMatchObject({ used: 9 })
    await expect(reserved.commit(9)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })

  test('a rollback undoes a reservation', async () => {
    const { quota, rows } = quotaOn(database, limiter)
    await undone(database.db, async (tx) => {
      expect(await quota.reserve('key', { rate: 4, tx })).toMatchObject({ success: true })
    })
    expect(await rows()).toEqual([])
  })

  test('a reservation of 0 is settled with its cost', async () => {
    const { quota, rows } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 0 }))
    expect(await rows()).toEqual([])
    await reserved.commit(3)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 3 })
  })

  test.each([-1, Number.NaN, Number.POSITIVE_INFINITY])(
    'a cost of %d is refused, and it stays open',
    async (actual) => {
      const { db, statements } = watch(database.db)
      const { quota } = quotaOn(database, limiter, { db })
      const reserved = allowed(await quota.reserve('key', { rate: 4 }))
      await expect(reserved.commit(actual)).rejects.toMatchObject({ code: 'INVALID_RATE' })
      expect(statements).toHaveLength(2)
      expect(await reserved.commit(6)).toMatchObject({ success: true, remaining: 4 })
    },
  )
})

describe('a settling in a transaction holds until a rollback', () => {
  const SETTLED = { code: 'ALREADY_SETTLED' }

  async function reservedOf() {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    const used = async () => (await quota.getRemaining('key')).used
    return { quota, reserved, used }
  }

  test('as long as the transaction runs', async () => {
    const { reserved, used } = await reservedOf()
    await undone(database.db, async (tx) => {
      await reserved.commit(9, { tx })
      await expect(reserved.commit(9, { tx })).rejects.toMatchObject(SETTLED)
      await expect(reserved.release({ tx })).rejects.toMatchObject(SETTLED)
    })
    expect(await used()).toBe(4)
    await reserved.release()
    expect(await used()).toBe(0)
  })

  test('after each rollback, until one is committed', async () => {
    const { reserved, used } = await reservedOf()
    for (const actual of [9, 1, 0]) await undone(database.db, (tx) => reserved.commit(actual, { tx }))
    expect(await used()).toBe(4)
    await database.db.transaction((tx) => reserved.commit(2, { tx }))
    await undone(database.db, (tx) => expect(reserved.commit(9, { tx })).rejects.toMatchObject(SETTLED))
    await expect(reserved.commit(9)).rejects.toMatchObject(SETTLED)
    expect(await used()).toBe(2)
  })

  test('and a rollback to a savepoint does not count', async () => {
    const { reserved, used } = await reservedOf()
    await undone(database.db, async (tx) => {
      await undone(tx, async (savepoint) => {
        await reserved.commit(9, { tx: savepoint })
      })
      await expect(reserved.commit(9, { tx })).rejects.toMatchObject(SETTLED)
    })
    await reserved.commit(9)
    expect(await used()).toBe(9)
  })

  test('also if nothing had to be written, or without a limit', async () => {
    const { quota, reserved, used } = await reservedOf()
    const limiter = Ratelimit.unlimited()
    const free = allowed(await quota.reserve('free', { rate: 4, limiter }))
    await undone(database.db, (tx) => reserved.commit(4, { tx }))
    await undone(database.db, (tx) => free.commit(9, { tx }))
    await reserved.commit(5)
    await free.commit(9)
    expect(await used()).toBe(5)
    await expect(free.commit(9)).rejects.toMatchObject(SETTLED)
  })

  test('and nothing is left to settle if the estimate was charged in it', async () => {
    const { quota, used } = await reservedOf()
    const inTransaction: Reservation[] = []
    await undone(database.db, async (tx) => {
      const inside = allowed(await quota.reserve('key', { rate: 3, tx }))
      await inside.commit(5, { tx })
      inTransaction.push(inside)
    })
    for (const each of inTransaction) await expect(each.commit(5)).rejects.toMatchObject(SETTLED)
    expect(await used()).toBe(4)
  })

  test.runIf(hasServer())('and one of many settlings at once after a rollback succeeds', async () => {
    const { reserved, used } = await reservedOf()
    await undone(database.db, (tx) => reserved.commit(9, { tx }))
    const settling = Array.from({ length: 8 }, (_, i) =>
      i % 2 ? reserved.commit(7) : database.db.transaction((tx) => reserved.commit(7, { tx })),
    )
    const done = (await Promise.allSettled(settling)).filter(({ status }) => status === 'fulfilled')
    expect(done).toHaveLength(1)
    expect(await used()).toBe(7)
  })

  test.runIf(hasServer())(
    'and other connections see that it runs, or that its connection broke',
    async () => {
      const { reserved, used } = await reservedOf()
      const broken = database.db.transaction(async (tx) => {
        await reserved.commit(9, { tx })
        await expect(reserved.commit(9)).rejects.toMatchObject(SETTLED)
        await tx.execute(sql`select pg_terminate_backend(pg_backend_pid())`)
      })
      await expect(broken).rejects.toThrow()
      await vi.waitFor(() => reserved.commit(8), PATIENTLY)
      expect(await used()).toBe(8)
    },
  )
})

describe('a second settling is refused', () => {
  const pairs = settlings.flatMap((first) => settlings.map((second) => ({ first, second })))

  test.each(pairs)('$first.how, then $second.how', async ({ first, second }) => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    await first.settle(reserved)
    const look = await quota.getRemaining('key')
    await expect(second.settle(reserved)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await quota.getRemaining('key')).toEqual(look)
  })

  test.each(pairs)('$first.how and $second.how at once', async ({ first, second }) => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    const [one, other] = await Promise.allSettled([first.settle(reserved), second.settle(reserved)])
    expect(one).toMatchObject({ status: 'fulfilled' })
    expect(other).toMatchObject({ status: 'rejected', reason: { code: 'ALREADY_SETTLED' } })
    expect(await quota.getRemaining('key')).toMatchObject({ used: first.how === 'commit' ? 1 : 0 })
  })

  test('of another reservation of the key it is the first', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const [one, other] = [await quota.reserve('key'), await quota.reserve('key')]
    await allowed(one).release()
    expect(await allowed(other).release()).toMatchObject({ remaining: 10 })
  })
})

describe('an error', () => {
  /** A reservation whose settling meets the driver's error once. */
  async function failing(code: string) {
    let failures = 0
    const driver = () =>
      Promise.reject(new Error('Failed query', { cause: Object.assign(new Error(code), { code }) }))
    const { db } = watch(database.db, () => failures-- > 0 && driver())
    const { quota } = quotaOn(database, TEN['fixed window'], { db })
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    failures = 1
    return { quota, reserved }
  }

  test.each(settlings)('that says that nothing was charged leaves it open, $how', async ({ how, settle }) => {
    const { quota, reserved } = await failing('ECONNREFUSED')
    await expect(settle(reserved)).rejects.toMatchObject({ code: 'UNREACHABLE' })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
    await settle(reserved)
    expect(await quota.getRemaining('key')).toMatchObject({ used: how === 'commit' ? 1 : 0 })
  })

  test.each(settlings)('that leaves the outcome unknown closes it, $how', async ({ settle }) => {
    const { quota, reserved } = await failing('ECONNRESET')
    await expect(settle(reserved)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await expect(settle(reserved)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
  })

  test('that comes after the charge closes it, whatever it is', async () => {
    const limiter = stored(Ratelimit.fixedWindow(10, '1h'))
    const { quota } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    const fault = new Error('no answer can be worked out')
    const guess = () => {
      throw fault
    }
    const { algorithm } = limiter
    const faulty = { ...limiter, algorithm: { ...algorithm, numbers: { ...algorithm.numbers, guess } } }
    await database.db.transaction((tx) =>
      expect(reserved.commit(6, { tx, limiter: faulty })).rejects.toThrow(fault.message),
    )
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
    await expect(reserved.commit(6)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })

  test('of the database leaves it open if it says why', async () => {
    const { quota, reserved } = await failing('42501')
    await expect(reserved.commit(1)).rejects.toMatchObject({ code: 'DATABASE', sqlState: '42501' })
    await reserved.commit(1)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
  })

  test.each(settlings)(
    'of an answer that lacks a column closes it, because it was charged, $how',
    async ({ settle }) => {
      const lacking = { isOn: false }
      const { db } = watch(database.db)
      const strange: typeof db = {
        ...db,
        execute: async (query) => {
          const answer = (await db.execute(query)) as { rows: object[] } | object[]
          if (!lacking.isOn) return answer
          return (Array.isArray(answer) ? answer : answer.rows).map((row) => ({ ...row, numbers: undefined }))
        },
      }
      const { quota } = quotaOn(database, TEN['fixed window'], { db: strange })
      await quota.limit('key', { rate: 5 })
      const reserved = allowed(await quota.reserve('key', { rate: 3 }))
      lacking.isOn = true
      await expect(settle(reserved)).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
      lacking.isOn = false
      const { used } = await quota.getRemaining('key')
      expect(used).toBeLessThan(8)
      await expect(settle(reserved)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
      expect(await quota.getRemaining('key')).toMatchObject({ used })
    },
  )

  test('of a clock that throws leaves it open', async () => {
    let fails = false
    const clock = () => {
      if (fails) throw new Error('no time')
      return new Date(0)
    }
    const { quota } = quotaOn(database, TEN['calendar month'], { clock })
    const reserved = allowed(await quota.reserve('key', { rate: 3 }))
    fails = true
    await expect(reserved.commit(5)).rejects.toMatchObject({ code: 'INVALID_CLOCK' })
    fails = false
    expect(await reserved.commit(5)).toMatchObject({ remaining: 5 })
  })

  test('of a transaction that breaks before it settles leaves it open', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    const broken = () => Promise.reject(Object.assign(new Error('broken'), { code: 'ECONNRESET' }))
    await database.db.transaction(async (tx) => {
      const settling = reserved.commit(1, { tx: watch(tx, broken).db })
      await expect(settling).rejects.toMatchObject({ code: 'UNREACHABLE' })
    })
    expect(await reserved.commit(1)).toMatchObject({ remaining: 9 })
  })

  test('with a tx that is not a transaction leaves it open', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    await expect(reserved.commit(1, { tx: database.db })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await reserved.commit(1)).toMatchObject({ remaining: 9 })
  })

  test('in an aborted transaction leaves it open', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    await undone(database.db, async (tx) => {
      await tx.execute('select 1 / 0').catch(() => {})
      await expect(reserved.commit(1, { tx })).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
    })
    expect(await reserved.commit(1)).toMatchObject({ remaining: 9 })
  })

  test('that refuses half a unit of a window leaves it open', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    await expect(reserved.commit(1.5)).rejects.toMatchObject({ code: 'INVALID_RATE' })
    expect(await reserved.commit(2)).toMatchObject({ remaining: 8 })
  })
})

test('a negative estimate is refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db })
  await expect(quota.reserve('key', { rate: -1 })).rejects.toMatchObject({ code: 'INVALID_RATE' })
  expect(statements).toEqual([])
})

test('a bucket takes fractions', async () => {
  const { quota } = quotaOn(database, TEN['continuous bucket'])
  const reserved = allowed(await quota.reserve('key', { rate: 2.5 }))
  await reserved.commit(0.25)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0.25, remaining: 9 })
})

describe('over the end of the window that paid', () => {
  /** When the window ends that a new key has at this time. */
  const toNextMs = ({ plan }: Kind, now: number) => {
    const { rules } = plan
    const first = rules.fresh(now)
    return firstFrom(now, (t) => rules.forward(first, t).at !== first.at) - now
  }
  const ends = kinds
    .filter(({ debtsEnd }) => debtsEnd === 'with the window')
    .map((kind) => ({ ...kind, toNextMs: (now: number) => toNextMs(kind, now) }))

  test.each(ends)(
    'a millisecond before its end the window gets the difference back, $name',
    async ({ limiter, toNextMs }) => {
      const { clock, quota } = quotaOn(database, limiter)
      const reserved = allowed(await quota.reserve('key', { rate: 6 }))
      clock.advance(toNextMs(clock.ms) - 1)
      await reserved.commit(2)
      expect(await quota.getRemaining('key')).toMatchObject({ used: 2 })
    },
  )

  test.each(ends)('the next window gets nothing back, $name', async ({ limiter, toNextMs }) => {
    for (const settle of [(r: Reservation) => r.commit(2), (r: Reservation) => r.release()]) {
      const { clock, quota, rows } = quotaOn(database, limiter)
      const reserved = allowed(await quota.reserve('key', { rate: 6 }))
      clock.advance(toNextMs(clock.ms))
      await quota.limit('key', { rate: 3 })
      const [before, look] = [await rows(), await quota.getRemaining('key')]
      expect(await settle(reserved)).toMatchObject({ success: true, remaining: look.remaining })
      expect(await rows()).toEqual(before)
      expect(await quota.getRemaining('key')).toEqual(look)
    }
  })

  test.each(ends)('an unused next window gets no row, $name', async ({ limiter, toNextMs }) => {
    const { clock, quota, rows } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 6 }))
    clock.advance(3 * toNextMs(clock.ms))
    const before = await rows()
    expect(await reserved.release()).toMatchObject({ success: true, remaining: 10 })
    expect(await rows()).toEqual(before)
  })

  test.each(ends)(
    'a cost above the estimate is charged to the next window, $name',
    async ({ plan, limiter, toNextMs }) => {
      const { clock, quota } = quotaOn(database, limiter)
      const reserved = allowed(await quota.reserve('key', { rate: 4 }))
      const model = new Model()
      model.limit(plan, clock.ms, 4)
      clock.advance(toNextMs(clock.ms))
      const { start } = await quota.getRemaining('key')
      await reserved.commit(9)
      // A sliding window goes on counting the four of the one before.
      model.limit(plan, clock.ms, 9 - 4)
      const { used } = model.getRemaining(plan, clock.ms)
      expect(await quota.getRemaining('key')).toMatchObject({ used, start })
    },
  )

  test.each(ends)('a transaction settles in the same way, $name', async ({ limiter, toNextMs }) => {
    const { clock, quota } = quotaOn(database, limiter)
    const reserved = await database.db.transaction((tx) => quota.reserve('key', { rate: 6, tx }))
    clock.advance(toNextMs(clock.ms))
    await quota.limit('key', { rate: 3 })
    const look = await quota.getRemaining('key')
    await database.db.transaction((tx) => allowed(reserved).release({ tx }))
    expect(await quota.getRemaining('key')).toEqual(look)
  })

  test('reservations of different windows are settled in one statement', async () => {
    const { clock, quota } = quotaOn(database, TEN['calendar month'])
    const old = allowed(await quota.reserve('key', { rate: 6 }))
    clock.ms = JANUARY.end
    const recent = allowed(await quota.reserve('key', { rate: 6 }))
    await Promise.all([old.release(), recent.release()])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
  })
})

test.each(kinds.filter(({ debtsEnd }) => debtsEnd === 'by refills'))(
  'a bucket gets back no more than it holds, $name',
  async ({ limiter }) => {
    const { clock, quota } = quotaOn(database, limiter)
    const reserved = allowed(await quota.reserve('key', { rate: 6 }))
    clock.advance(4 * HOUR_MS)
    expect(await reserved.release()).toMatchObject({ success: true, remaining: 10 })
    expect(await quota.limit('key', { rate: 10 })).toMatchObject({ success: true, remaining: 0 })
    expect(await quota.limit('key')).toMatchObject({ success: false })
  },
)

describe('a plan', () => {
  test('of the reservation is the plan of its settling', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const limiter = Ratelimit.fixedWindow(100, '10h')
    const reserved = allowed(await quota.reserve('key', { rate: 40, limiter }))
    expect(await reserved.commit(70)).toMatchObject({ limit: 100, remaining: 30 })
  })

  test('of another algorithm that began in between is left as it is', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    const limiter = TEN['calendar month']
    await quota.limit('key', { rate: 3, limiter })
    await expect(reserved.release()).rejects.toMatchObject({ code: 'OTHER_PLAN' })
    expect(await quota.getRemaining('key', { limiter })).toMatchObject({ used: 3 })
  })

  const changes = [...oneOfEachKind, ...uncounted].flatMap((from) =>
    oneOfEachKind
      .filter(({ algorithm }) => algorithm !== from.algorithm)
      .map((to) => ({ from, to, change: `${from.name}, then ${to.name}` })),
  )

  test.each(changes)(
    'of another kind given at the settling gets nothing back, $change',
    async ({ from, to }) => {
      const { limiter } = to
      const { quota } = quotaOn(database, from.limiter)
      const reserved = allowed(await quota.reserve('key', { rate: 4 }))
      await quota.limit('key', { rate: 3, limiter })
      expect(await reserved.release({ limiter })).toMatchObject({ success: true, limit: 10, remaining: 7 })
      expect(await quota.getRemaining('key', { limiter })).toMatchObject({ used: 3 })
    },
  )

  test.each(changes)(
    'of another kind given at the settling is charged the difference, $change',
    async ({ from, to }) => {
      const { limiter } = to
      const { quota } = quotaOn(database, from.limiter)
      const reserved = allowed(await quota.reserve('key', { rate: 4 }))
      await quota.limit('key', { rate: 3, limiter })
      expect(await reserved.commit(6, { limiter })).toMatchObject({ success: true, limit: 10, remaining: 5 })
      expect(await quota.getRemaining('key', { limiter })).toMatchObject({ used: 5 })
    },
  )

  test.each(kinds)('that is larger by now is settled like its own, $name', async ({ limiter, of }) => {
    const { quota } = quotaOn(database, limiter)
    const larger = of(100, '1h').limiter
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    const { used } = await quota.getRemaining('key', { limiter: larger })
    await reserved.commit(1, { limiter: larger })
    expect(await quota.getRemaining('key', { limiter: larger })).toMatchObject({ used: used - 3 })
  })

  test('that is unlimited is settled without a statement', async () => {
    const { db, statements } = watch(database.db)
    const { quota } = quotaOn(database, Ratelimit.unlimited(), { db })
    const reserved = allowed(await quota.reserve('key', { rate: 40 }))
    expect(await reserved.commit(70)).toMatchObject({ success: true, remaining: Number.POSITIVE_INFINITY })
    await expect(reserved.commit(70)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(statements).toEqual([])
  })
})

describe('dryRun', () => {
  test('refuses a cost that is not a number, also for a call that it would deny', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'], { dryRun: true })
    const reserved = allowed(await quota.reserve('key', { rate: 11 }))
    for (const actual of [Number.NaN, -1]) {
      await expect(reserved.commit(actual)).rejects.toMatchObject({ code: 'INVALID_RATE' })
    }
    expect(await reserved.commit(3)).toMatchObject({ success: true })
  })

  test('lets a reservation pass that it would deny, and gives back nothing for it', async () => {
    const { quota, rows } = quotaOn(database, TEN['fixed window'], { dryRun: true })
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    expect(reserved).toMatchObject({ wouldDeny: { success: false, remaining: 2 } })
    expect(await reserved.release()).toMatchObject({ success: true, remaining: 2 })
    expect(await rows()).toEqual(before)
  })

  test('settles one that it allows like any other', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'], { dryRun: true })
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    expect(reserved).not.toHaveProperty('wouldDeny')
    await reserved.commit(6)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
  })
})

test('a settling ends the remembered denial', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'], { inMemoryBlock: true })
  const reserved = allowed(await quota.reserve('key', { rate: 10 }))
  expect(await quota.limit('key')).toMatchObject({ success: false })
  await reserved.release()
  expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 9 })
})
