import { sql } from 'drizzle-orm'
import { describe, expect, test } from 'vitest'
import { type Database, limitAll, Ratelimit, type RatelimitError } from '../../../src/index.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { holdRows, untilWaiting } from '../../support/locks.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(5, '1h')
const SECRET = 'alice@example.com'

/** The error of a call, which tells no secret. */
async function discreetErrorOf(call: Promise<unknown>): Promise<RatelimitError> {
  const error = await errorOf(() => call)
  expect(error.message).not.toContain(SECRET)
  expect(error.stack).not.toContain(SECRET)
  return error
}

/** An error as Drizzle wraps a driver's. */
function fromDriver(code: string | undefined): Error {
  const cause = Object.assign(new Error('the driver says'), code === undefined ? {} : { code })
  return new Error(`Failed query, params: ${SECRET}`, { cause })
}

describe('a code of the driver becomes a code of the package', () => {
  test.each([
    ['40001', 'SERIALIZATION_FAILURE', '40001'],
    ['40P01', 'DEADLOCK', '40P01'],
    ['25P02', 'TRANSACTION_ABORTED', '25P02'],
    ['42P01', 'MISSING_TABLE', '42P01'],
    ['3F000', 'MISSING_TABLE', '3F000'],
    ['42703', 'MISSING_TABLE', '42703'],
    ['42501', 'DATABASE', '42501'],
    ['57P02', 'OUTCOME_UNKNOWN', '57P02'],
    ['57P03', 'UNREACHABLE', '57P03'],
    ['08004', 'UNREACHABLE', '08004'],
    ['57P01', 'OUTCOME_UNKNOWN', '57P01'],
    ['08006', 'OUTCOME_UNKNOWN', '08006'],
    ['53300', 'UNREACHABLE', '53300'],
    ['08001', 'UNREACHABLE', '08001'],
    ['40003', 'OUTCOME_UNKNOWN', '40003'],
    ['ECONNREFUSED', 'UNREACHABLE', undefined],
    ['ECONNRESET', 'OUTCOME_UNKNOWN', undefined],
    ['EPIPE', 'OUTCOME_UNKNOWN', undefined],
    ['P1017', 'OUTCOME_UNKNOWN', undefined],
    ['P0001', 'DATABASE', 'P0001'],
    ['CONNECTION_CLOSED', 'OUTCOME_UNKNOWN', undefined],
    [undefined, 'OUTCOME_UNKNOWN', undefined],
  ])('%s: %s', async (driverCode, code, sqlState) => {
    const failing = fromDriver(driverCode)
    const { db } = watch(database.db, () => Promise.reject(failing))
    const joined = { ...db, rollback: undefined }
    const error = await discreetErrorOf(new Ratelimit({ db: joined, limiter, prefix: 'codes' }).limit(SECRET))
    expect(error).toMatchObject({ code, sqlState, name: 'RatelimitError', cause: failing.cause })
  })

  test.each([
    ['XX000', 'severity', 'FATAL', 'OUTCOME_UNKNOWN'],
    ['XX000', 'severity_local', 'FATAL', 'OUTCOME_UNKNOWN'],
    ['58000', 'severity', 'FATAL', 'OUTCOME_UNKNOWN'],
    ['XX000', 'severity', 'ERROR', 'DATABASE'],
  ])(
    '%s with the %s %s: %s, because poolers end connections with it',
    async (sqlState, name, value, code) => {
      const refused = Object.assign(new Error('the driver says'), { code: sqlState, [name]: value })
      const { db } = watch(database.db, () => Promise.reject(refused))
      const error = await errorOf(() => new Ratelimit({ db, limiter, prefix: 'codes' }).limit('key'))
      expect(error).toMatchObject({ code, sqlState })
    },
  )

  test('Bun has the SQLSTATE elsewhere', async () => {
    const cause = Object.assign(new Error(), { code: 'ERR_POSTGRES_SERVER_ERROR', errno: '42P01' })
    const { db } = watch(database.db, () => Promise.reject(new Error('Failed query', { cause })))
    const error = await errorOf(() => new Ratelimit({ db, limiter, prefix: 'codes' }).limit('key'))
    expect(error).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01', cause })
  })
})

describe('outside a transaction', () => {
  test.each(['40001', '40P01'])('%s is tried again, and no more than some times', async (code) => {
    let failures = 3
    const passing = watch(database.db, () => failures-- > 0 && Promise.reject(fromDriver(code)))
    const ratelimit = new Ratelimit({
      db: passing.db,
      limiter,
      prefix: `retry ${code}`,
      cleanupProbability: 0,
    })
    expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 4 })
    // Three that fail, the one that takes and the one that makes the row.
    expect(passing.statements).toHaveLength(5)
    failures = 2
    expect(await limitAll([{ ratelimit, key: SECRET }])).toMatchObject({ success: true })

    const lasting = watch(database.db, () => Promise.reject(fromDriver(code)))
    await discreetErrorOf(new Ratelimit({ db: lasting.db, limiter, prefix: 'retry' }).limit(SECRET))
    expect(lasting.statements).toHaveLength(10)
  })

  test.each(['40001', '40P01'])('a look, a reset and a cleanup are tried again after %s', async (code) => {
    const prefix = `again ${code}`
    await new Ratelimit({ db: database.db, limiter, prefix }).limit(SECRET)
    let failures = 0
    const { db, statements } = watch(database.db, () => failures-- > 0 && Promise.reject(fromDriver(code)))
    const ratelimit = new Ratelimit({ db, limiter, prefix, cleanupProbability: 0 })
    const calls = [
      async () => expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used: 1 }),
      async () => {
        const looks = await Promise.all([SECRET, 'other'].map((key) => ratelimit.getRemaining(key)))
        expect(looks.map(({ used }) => used)).toEqual([1, 0])
      },
      () => ratelimit.resetUsedTokens(SECRET),
      // It also looks for ids of `once` that have ended, and for reservations that were settled.
      async () => expect(await ratelimit.cleanup()).toBe(0),
    ]
    for (const [place, call] of calls.entries()) {
      failures = 2
      statements.length = 0
      await call()
      expect(statements).toHaveLength(2 + (place < 3 ? 1 : 3))
    }
    expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used: 0 })
  })

  test.each(['57P01', 'ECONNRESET', undefined, '42501'])(
    '%s is not tried again: a charge may have been made',
    async (code) => {
      const { db, statements } = watch(database.db, () => Promise.reject(fromDriver(code)))
      await discreetErrorOf(new Ratelimit({ db, limiter, prefix: 'once' }).limit(SECRET))
      expect(statements).toHaveLength(1)
    },
  )
})

describe('a statement for keys that another has left undecided', () => {
  /**
   * A limiter whose check of 'b' loses its first insert, which is the second statement, and whose next ones
   * fail with the given error.
   */
  function losing(prefix: string, failure: Error, times: number) {
    let statement = 0
    const watched = watch(
      database.db,
      () => ++statement > 2 && statement <= 2 + times && Promise.reject(failure),
    )
    const db: Database = {
      ...watched.db,
      execute: async (query) => {
        const result = await watched.db.execute(query)
        const rows = Array.isArray(result) ? result : (result as { rows: Record<string, unknown>[] }).rows
        if (statement === 2) for (const row of rows) if (Number(row['place']) === 2) row['decided'] = false
        return result
      },
    }
    return new Ratelimit({ db, limiter, prefix, cleanupProbability: 0 })
  }

  test('is tried again by itself, and decided keys are not charged twice', async () => {
    const ratelimit = losing('twice', fromDriver('40P01'), 1)
    const [a] = await Promise.all(['a', 'b'].map((key) => ratelimit.limit(key)))
    expect(a).toMatchObject({ success: true, remaining: 4 })
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 4 })
  })

  test('fails those keys only, and the charged ones get their answers', async () => {
    const ratelimit = losing('told', fromDriver('ECONNREFUSED'), 9)
    const [a, b] = await Promise.allSettled(['a', 'b'].map((key) => ratelimit.limit(key)))
    expect(a).toMatchObject({ status: 'fulfilled', value: { success: true } })
    expect(b).toMatchObject({ status: 'rejected', reason: { code: 'UNREACHABLE' } })
  })
})

describe("inside a caller's", () => {
  test('a failed check is not tried again', async () => {
    await database.db.transaction(async (tx) => {
      const { db, statements } = watch(tx, () => Promise.reject(fromDriver('40001')))
      const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'joined' })
      const error = await discreetErrorOf(ratelimit.limit(SECRET, { tx: { ...db, rollback: undefined } }))
      expect(error.code).toBe('SERIALIZATION_FAILURE')
      await discreetErrorOf(limitAll([{ ratelimit, key: SECRET }], { tx: db }))
      expect(statements).toHaveLength(2)
    })
  })

  test('an aborted transaction has a code of its own, and its savepoint recovers', async () => {
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'aborted' })
    const undo = new Error('undo')
    await undone(database.db, async (tx) => {
      const nested = tx.transaction(async (inner) => {
        await inner.execute(sql`select 1 / 0`).catch(() => {})
        expect((await discreetErrorOf(ratelimit.limit(SECRET, { tx: inner }))).code).toBe(
          'TRANSACTION_ABORTED',
        )
        throw undo
      })
      await expect(nested).rejects.toBe(undo)
      expect(await ratelimit.limit(SECRET, { tx })).toMatchObject({ success: true })
    })
  })
})

describe.runIf(hasServer())('on a server', () => {
  test('40001 in REPEATABLE READ, when the row changed since the snapshot, and once more is enough', async () => {
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'repeatable' })
    await ratelimit.limit(SECRET)
    const attempt = (meanwhile: () => Promise<unknown>) =>
      database.db.transaction(
        async (tx) => {
          await tx.execute(sql`select count(*) from rate_limit_ephemeral`)
          await meanwhile()
          return ratelimit.limit(SECRET, { tx })
        },
        { isolationLevel: 'repeatable read' },
      )
    const error = await discreetErrorOf(attempt(() => ratelimit.limit(SECRET)))
    expect(error).toMatchObject({ code: 'SERIALIZATION_FAILURE', sqlState: '40001' })
    expect(await attempt(async () => {})).toMatchObject({ success: true, remaining: 2 })
  })

  test('two transactions that check A and B in opposite orders: one gets 40P01, and limitAll would not', async () => {
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'opposite' })
    await Promise.all(['A', 'B'].map((key) => ratelimit.limit(key)))
    const started: (() => void)[] = []
    const both = new Promise<void>((resolve) => started.push(resolve))
    const inOrder = (first: string, second: string) =>
      database.connect(1).db.transaction(async (tx) => {
        await ratelimit.limit(first, { tx })
        if (started.length === 1) started.push(() => {})
        else started[0]?.()
        await both
        await ratelimit.limit(second, { tx })
      })
    const outcomes = await Promise.allSettled([inOrder('A', 'B'), inOrder('B', 'A')])
    const failed = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
    expect(failed).toMatchObject([{ code: 'DEADLOCK', sqlState: '40P01' }])
  })

  test('a connection that breaks: the outcome is unknown, and nothing is charged twice', async () => {
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'broken', cleanupProbability: 0 })
    await ratelimit.limit('key')
    const holder = await holdRows(database, 'broken')
    const waiting = discreetErrorOf(ratelimit.limit('key'))
    const [waiter] = await untilWaiting(database)
    await database.rows(`select pg_terminate_backend(${waiter})`)
    expect((await waiting).code).toBe('OUTCOME_UNKNOWN')
    await holder.query('rollback')
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 4 })
  })
})
