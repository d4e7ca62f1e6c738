import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/postgres-js'
import { ledger } from 'drizzle-ratelimit/ledger'
import postgres from 'postgres'
import { afterEach, describe, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { holdRows } from '../support/locks.ts'
import {
  count,
  endBackends,
  expectExact,
  limit,
  limitAllOn,
  limiter,
  newPrefix,
  type Outcome,
  outcomeOf,
  recovers,
  SECRET,
  uncaughtBy,
  usedOf,
  useProxy,
} from './kit.ts'

// The same network for another driver, which reconnects by itself and has no pool to look into.

const database = useDatabase()
const OWN = `pg_stat_activity where application_name = 'postgres.js' and datname = current_database()`
type Tx = Parameters<Parameters<ReturnType<typeof drizzle>['transaction']>[0]>[0]
const clients: postgres.Sql[] = []
const network = useProxy(database)
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end({ timeout: 1 })))
})

function connect(max = 3): postgres.Sql {
  // Without fetch_types: where a connection ends while it fetches them, postgres.js leaves a rejection
  // unhandled.
  const client = postgres(network.url, {
    ...{ max, fetch_types: false, onnotice: () => {} },
    ...{ backoff: () => 0.02, connect_timeout: 1 },
  })
  clients.push(client)
  return client
}

function open(prefix: string, max = 3, options: { readonly timeout?: number } = {}): Ratelimit {
  const client = connect(max)
  return new Ratelimit({ db: drizzle({ client }), limiter, prefix, cleanupProbability: 0, ...options })
}

describe.each(Object.entries({ limit, limitAll: limitAllOn }))('%s', (way, call) => {
  test.each(['cut before', 'cut after'] as const)(
    '%s: the error is true, and the next call goes on',
    async (fault) => {
      const prefix = newPrefix(`${way}, ${fault}`)
      const ratelimit = open(prefix, 1)
      for (let i = 0; i < 3; i++) await call(ratelimit)
      let outcome = ''
      const uncaught = await uncaughtBy(async () => {
        let isNext = true
        network.proxy.fault = () => {
          const met = isNext ? fault : 'pass'
          isNext = false
          return met
        }
        outcome = await outcomeOf(call(ratelimit))
      })
      expect(['OUTCOME_UNKNOWN', 'UNREACHABLE']).toContain(outcome)
      expect(uncaught).toEqual([])
      await recovers(() => call(ratelimit))
      // A statement that is new to a connection takes two requests, of which the first one charges nothing.
      const most = fault === 'cut after' && outcome === 'OUTCOME_UNKNOWN' ? 5 : 4
      const used = await usedOf(database, prefix, SECRET)
      expect(used).toBeGreaterThanOrEqual(4)
      expect(used).toBeLessThanOrEqual(most)
    },
  )

  test('no server listens: UNREACHABLE, and later calls succeed', async () => {
    // The driver may never settle a statement that it sends just when its connection breaks.
    const ratelimit = open(newPrefix(`${way}, refused`), 3, { timeout: 2000 })
    await call(ratelimit)
    await network.proxy.welcome('refuse')
    await expect.poll(() => outcomeOf(call(ratelimit)), { timeout: 30_000 }).toBe('UNREACHABLE')
    await network.proxy.welcome('accept')
    await recovers(() => call(ratelimit))
  })
})

test('backends are ended: granted <= used <= granted + unknown, and later calls succeed', async () => {
  const prefix = newPrefix('ended')
  const ratelimit = open(prefix)
  const outcomes: Outcome[] = []
  const uncaught = await uncaughtBy(async () => {
    for (let round = 0; round < 8; round++) {
      const calls = Array.from({ length: 8 }, () => outcomeOf(limit(ratelimit)))
      await endBackends(database, `${OWN} limit 1`)
      outcomes.push(...(await Promise.all(calls)))
    }
  })
  expect(uncaught).toEqual([])
  expectExact(outcomes, await usedOf(database, prefix, SECRET))
  expect(count(outcomes, 'granted')).toBeGreaterThan(0)
  await recovers(() => limit(ratelimit))
})

test('a backend is ended in limitAll: nothing is charged, and the process goes on', async () => {
  const prefix = newPrefix('all')
  const ratelimit = open(prefix)
  await limitAllOn(ratelimit)
  const holder = await holdRows(database, prefix)
  const uncaught = await uncaughtBy(async () => {
    const call = outcomeOf(limitAllOn(ratelimit))
    await expect.poll(() => endBackends(database, `${OWN} and wait_event_type = 'Lock'`)).toBe(1)
    // It waits for the row by a statement that charges nothing.
    expect(await call).toBe('UNREACHABLE')
  })
  await holder.query('rollback')
  expect(await usedOf(database, prefix, SECRET)).toBe(1)
  await recovers(() => limitAllOn(ratelimit))
  expect(uncaught).toEqual([])
})

describe('a backend ends in a transaction that the limiter begins: nothing is charged, the process goes on', () => {
  const IDLE = `${OWN} and state = 'idle in transaction'`

  /** Ends the backend while the limiter's transaction is idle, and waits until the client has seen it. */
  async function endIdle(): Promise<void> {
    const before = network.proxy.connections
    await expect.poll(() => endBackends(database, IDLE)).toBe(1)
    await expect.poll(() => network.proxy.connections).toBeLessThan(before)
    // The network has closed the connection to the client, which reads that in one of its next turns.
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
  }

  /** What the ledger does. */
  const ways: Record<string, (tx: Tx) => Promise<unknown>> = {
    'by a statement of its own': (tx) => tx.execute(sql`select pg_terminate_backend(pg_backend_pid())`),
    'in a savepoint': (tx) =>
      tx.transaction((nested) => nested.execute(sql`select pg_terminate_backend(pg_backend_pid())`)),
    'before the commit': endIdle,
    'before a further statement': async (tx) => {
      await endIdle()
      await tx.execute(sql`select 1`)
    },
    'before a savepoint': async (tx) => {
      await endIdle()
      await tx.transaction(async (nested) => nested.execute(sql`select 1`))
    },
    'while a savepoint does something else': (tx) => tx.transaction(endIdle),
    'before it throws': async () => {
      await endIdle()
      throw new Error('no')
    },
  }

  test.each(Object.entries(ways))('%s', async (name, way) => {
    const prefix = newPrefix(name)
    let ends = false
    const client = connect()
    const ratelimit = new Ratelimit({
      ...{ db: drizzle({ client }), limiter, prefix, cleanupProbability: 0 },
      use: [ledger<ReturnType<typeof drizzle>>(async (tx) => ends && way(tx))],
    })
    await limit(ratelimit)
    const uncaught = await uncaughtBy(async () => {
      ends = true
      expect(await outcomeOf(limit(ratelimit))).toBe('UNREACHABLE')
      await new Promise((resolve) => setTimeout(resolve, 50))
      ends = false
      await recovers(() => limit(ratelimit))
    })
    expect(uncaught).toEqual([])
    expect(await usedOf(database, prefix, SECRET)).toBe(2)
  })
})

describe.each(['cut before', 'cut after'] as const)('a transaction of the limiter is %s', (fault) => {
  test.each([0, 1, 2, 3, 4, 5, 6, 7])(
    'request %i: granted <= used <= granted + unknown, and its connection is used again',
    async (place) => {
      const prefix = newPrefix(`${fault} ${place}`)
      const ratelimit = new Ratelimit({
        ...{ db: drizzle({ client: connect(1) }), limiter, prefix, cleanupProbability: 0 },
        use: [ledger(async (tx) => tx.execute(sql`select 1`))],
      })
      const outcomes: Outcome[] = []
      const call = async () => {
        const outcome = await outcomeOf(limit(ratelimit))
        outcomes.push(outcome)
        return { success: outcome === 'granted' }
      }
      for (let i = 0; i < 2; i++) await call()
      const uncaught = await uncaughtBy(async () => {
        let requests = 0
        network.proxy.fault = () => (requests++ === place ? fault : 'pass')
        await call()
        network.proxy.fault = () => 'pass'
        await recovers(call)
      })
      expect(uncaught).toEqual([])
      expectExact(outcomes, await usedOf(database, prefix, SECRET))
    },
  )
})
