import { createServer } from 'node:net'
import { DefaultLogger } from 'drizzle-orm'
import { drizzle as drizzleNodePostgres } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js'
import { ledger } from 'drizzle-ratelimit/ledger'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { schedule } from 'drizzle-ratelimit/schedule'
import pg from 'pg'
import postgres from 'postgres'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit } from '../../src/index.ts'
import { Quota } from '../../src/quota/index.ts'
import { Semaphore } from '../../src/semaphore/index.ts'
import { allowed } from '../support/allowed.ts'
import { useDatabase } from '../support/databases.ts'
import { fakeTime, useFakeTime } from '../support/timers.ts'
import { errorOf, limiter, newPrefix, openPool, outcomeOf, SECRET, usePools } from './kit.ts'

// A call that gets no connection in time has sent nothing. It says so, and nothing of it is sent later.

const database = useDatabase()
useFakeTime()
const server = usePools(database)
/** In the test's time, which passes only where a test lets it. */
const PATIENCE_MS = 1_000

const ends: (() => Promise<unknown>)[] = []

afterEach(async () => {
  vi.useRealTimers()
  for (const end of ends.splice(0)) await end()
})

/** A database with one connection. */
interface Single {
  readonly db: Database
  /** Lets others use the connection until it is called. */
  take(): Promise<() => Promise<unknown>>
}

/** Keeps a client busy until it is let go. */
async function busy(client: pg.Client): Promise<() => Promise<unknown>> {
  const holder = await database.client()
  await holder.query('begin; select pg_advisory_xact_lock(7)')
  ends.unshift(() => holder.query('rollback'))
  const text = 'select pg_advisory_xact_lock(7)'
  const running = client.query({ text, query_timeout: 60_000 } as pg.QueryConfig)
  await expect
    .poll(() => database.rows("select 1 from pg_locks where locktype = 'advisory' and not granted"))
    .toHaveLength(1)
  return async () => {
    await holder.query('rollback')
    await running
  }
}

async function connect(config: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server.url, ...config })
  client.on('error', () => {})
  await client.connect()
  ends.push(() => client.end())
  return client
}

/** Drizzle's logger reads each parameter before the driver does. */
const logger = new DefaultLogger({ writer: { write: () => {} } })

const drivers: Record<string, () => Promise<Single>> = {
  'a full pool of node-postgres': async () => {
    const { pool } = openPool(server.url, { max: 1 })
    return {
      db: drizzleNodePostgres({ client: pool, logger }),
      take: async () => {
        const client = await pool.connect()
        return async () => client.release()
      },
    }
  },
  'a busy client of node-postgres': async () => {
    const client = await connect()
    return { db: drizzleNodePostgres({ client }), take: () => busy(client) }
  },
  'a taken connection of postgres.js': async () => {
    const client = postgres(server.url, { max: 1, onnotice: () => {} })
    ends.push(() => client.end({ timeout: 1 }))
    return {
      db: drizzlePostgresJs({ client, logger }),
      take: async () => {
        const reserved = await client.reserve()
        return async () => reserved.release()
      },
    }
  },
}

/** What is left of a key, before and after a call. */
interface Way {
  readonly call: () => PromiseLike<unknown>
  readonly left: () => Promise<unknown>
}

type Open = (db: Database, timeout: number) => Promise<Way>

const direct = { cleanupProbability: 0, limiter } as const

function windowOn(db: Database, config: object = {}) {
  const common = { ...direct, prefix: newPrefix('unsent'), ...config }
  const left = async () =>
    (await new Ratelimit({ ...common, db: database.db }).getRemaining(SECRET)).remaining
  return { ratelimit: new Ratelimit({ ...common, db }), left }
}

function slotsOn(db: Database, timeout: number | string) {
  const prefix = newPrefix('unsent')
  const common = { db, prefix, cleanupProbability: 0, timeout: timeout as '1m' }
  const slots = new Semaphore({ ...common, limit: 1, lease: '1h' })
  const left = () => database.rows('select key from rate_limit_durable where prefix = $1', [prefix])
  return { slots, left }
}

const ways: Record<string, Open> = {
  limit: async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    await ratelimit.limit(SECRET)
    return { call: () => ratelimit.limit(SECRET, { rate: 3 }), left }
  },
  'limit on a new key': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    return { call: () => ratelimit.limit(SECRET), left }
  },
  'limit with a ledger': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout, use: [ledger(async () => {})] })
    return { call: () => ratelimit.limit(SECRET), left }
  },
  'limit with prefetch': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout, use: [prefetch({ tokens: 5, for: '1m' })] })
    return { call: () => ratelimit.limit(SECRET), left }
  },
  'limit with once': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    return { call: () => ratelimit.limit(SECRET, { once: { id: 'job', for: '1d' } }), left }
  },
  limitAll: async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    await ratelimit.limit(SECRET)
    const requests = [SECRET, 'other'].map((key) => ({ ratelimit, key, rate: 3 }))
    return { call: () => limitAll(requests), left }
  },
  'a look': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    return { call: () => ratelimit.getRemaining(SECRET), left }
  },
  'a refund': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    await ratelimit.limit(SECRET, { rate: 5 })
    return { call: () => ratelimit.limit(SECRET, { rate: -2 }), left }
  },
  'a reset': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    await ratelimit.limit(SECRET, { rate: 5 })
    return { call: () => ratelimit.resetUsedTokens(SECRET), left }
  },
  'a commit': async (db, timeout) => {
    const { ratelimit, left } = windowOn(db, { timeout })
    const reserved = allowed(await ratelimit.reserve(SECRET, { rate: 5 }))
    return { call: () => reserved.commit(2), left }
  },
  'a settlement': async (db, timeout) => {
    const common = { ...direct, prefix: newPrefix('unsent'), timeout, durable: false } as const
    const left = async () => (await new Quota({ ...common, db: database.db }).getRemaining(SECRET)).remaining
    const quota = new Quota({ ...common, db })
    await quota.reserve(SECRET, { rate: 5, id: 'job', expires: '1h' })
    return { call: () => quota.settle({ key: SECRET, id: 'job' }, 2), left }
  },
  schedule: async (db, timeout) => {
    const [prefix, refilled] = [newPrefix('unsent'), Ratelimit.gcra(10, '1h')]
    const on = (own: Database) => new Ratelimit({ ...direct, db: own, prefix, limiter: refilled, timeout })
    const left = async () => (await on(database.db).getRemaining(SECRET)).remaining
    return { call: () => schedule(on(db), SECRET, { within: '1h' }), left }
  },
  credits: async (db, timeout) => {
    const prefix = newPrefix('unsent')
    const on = (own: Database) => new Credits({ db: own, prefix, dated: true, timeout })
    await on(db).grant(SECRET, 10, { id: 'grant', expires: new Date(Date.now() + 3_600_000) })
    const left = async () => (await on(database.db).getRemaining(SECRET)).remaining
    return { call: () => on(db).limit(SECRET, { rate: 4 }), left }
  },
  acquire: async (db, timeout) => {
    const { slots, left } = slotsOn(db, timeout)
    return { call: () => slots.acquire(SECRET), left }
  },
  'acquire that waits': async (db, timeout) => {
    const { slots, left } = slotsOn(db, '1m')
    return { call: () => slots.acquire(SECRET, { timeout }), left }
  },
  'a release of a slot': async (db, timeout) => {
    const { slots, left } = slotsOn(db, timeout)
    const lease = allowed(await slots.acquire(SECRET))
    return { call: () => lease.release(), left }
  },
}

async function timePassesFor<T>(call: Promise<T>): Promise<T> {
  let isOver = false
  const ended = call.finally(() => {
    isOver = true
  })
  while (!isOver) {
    await new Promise(setImmediate)
    vi.advanceTimersByTime(PATIENCE_MS)
  }
  return ended
}

describe.each(Object.entries(drivers))('%s', (_, openDb) => {
  test.each(Object.entries(ways))('%s: TIMEOUT, and nothing is charged later', async (_way, open) => {
    const { db, take } = await openDb()
    fakeTime()
    const { call, left } = await open(db, PATIENCE_MS)
    const before = await left()
    const letGo = await take()
    expect(await timePassesFor(errorOf(call()))).toMatchObject({ code: 'TIMEOUT' })
    await letGo()
    // Comes behind what is still on its way.
    await db.execute('select 1' as never)
    expect(await left()).toEqual(before)
  })
})

test('query_timeout ends a statement behind a busy one: UNREACHABLE, and nothing is charged later', async () => {
  const client = await connect({ query_timeout: 300 })
  const { ratelimit, left } = windowOn(drizzleNodePostgres({ client }))
  const letGo = await busy(client)
  const calls = [
    () => ratelimit.limit(SECRET),
    () => limitAll([SECRET, 'other'].map((key) => ({ ratelimit, key }))),
  ]
  for (const call of calls) expect(await errorOf(call())).toMatchObject({ code: 'UNREACHABLE' })
  await letGo()
  await client.query({ text: 'select 1', query_timeout: 60_000 } as pg.QueryConfig)
  expect(await left()).toBe(100)
})

describe('calls that share a statement', () => {
  const poolOf = () => openPool(server.url, { max: 1 })
  const waits = (ratelimit: Ratelimit, key: string) => ratelimit.blockUntilReady(key, 100)

  test.each([
    ['of one key', SECRET, 1],
    ['of two keys', 'other', 0],
  ])('%s: the one that gives up is not charged, and the other one is', async (_, key, used) => {
    const { db, pool } = poolOf()
    const { ratelimit } = windowOn(db, { timeout: '1m' })
    await ratelimit.getRemaining(SECRET)
    const client = await pool.connect()
    const [hasty, patient] = [errorOf(waits(ratelimit, SECRET)), ratelimit.limit(key)]
    expect(await hasty).toMatchObject({ code: 'TIMEOUT' })
    client.release()
    expect(await patient).toMatchObject({ success: true, remaining: 99 })
    expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used })
  })

  test('that prefetches: the one that gives up is not charged, and the other one is', async () => {
    const { db, pool } = poolOf()
    const { ratelimit, left } = windowOn(db, { timeout: '1m', use: [prefetch({ tokens: 5, for: '1h' })] })
    await ratelimit.limit(SECRET)
    const client = await pool.connect()
    const [hasty, patient] = [errorOf(waits(ratelimit, SECRET)), ratelimit.limit(SECRET)]
    expect(await hasty).toMatchObject({ code: 'TIMEOUT' })
    client.release()
    expect(await patient).toMatchObject({ success: true })
    expect(await ratelimit.limit(SECRET)).toHaveProperty('prefetched')
    await ratelimit.close()
    expect(await left()).toBe(97)
  })

  test('slots: the one that gives up gets none, and the other one does', async () => {
    const { db, pool } = poolOf()
    const { slots } = slotsOn(db, '1m')
    const client = await pool.connect()
    const hasty = errorOf(slots.acquire(SECRET, { timeout: 100 }))
    const patient = slots.acquire(SECRET, { timeout: '1m' })
    expect(await hasty).toMatchObject({ code: 'TIMEOUT', message: expect.not.stringContaining('charge') })
    client.release()
    expect(await patient).toMatchObject({ success: true })
  })

  test('lists: the one that gives up is not charged, and the other one is', async () => {
    fakeTime()
    const { db, pool } = poolOf()
    const { ratelimit } = windowOn(db, { timeout: 600 })
    const call = (key: string) =>
      outcomeOf(limitAll([key, `${key} too`].map((each) => ({ ratelimit, key: each }))))
    expect(await call('first')).toBe('granted')
    const client = await pool.connect()
    // These have the four places of shared statements.
    const places = ['a', 'b', 'c', 'd'].map(async (key) => call(key))
    await vi.advanceTimersByTimeAsync(100)
    const hasty = call('hasty')
    await vi.advanceTimersByTimeAsync(300)
    const patient = call('patient')
    await vi.advanceTimersByTimeAsync(300)
    expect(await Promise.all(places)).toEqual(Array(4).fill('TIMEOUT'))
    expect(await hasty).toBe('TIMEOUT')
    client.release()
    expect(await patient).toBe('granted')
    const usages = await ratelimit.getRemainingAll(['a', 'b', 'c', 'd', 'hasty', 'patient', 'first'])
    expect(usages.map(({ used }) => used)).toEqual([0, 0, 0, 0, 0, 1, 1])
  })
})

describe('codes that poolers send for everything', () => {
  type PoolerCode = '08P01' | 'XX000'

  /** Answers each client with the code: at its start-up, or to its first statement. */
  async function pooler(
    phase: 'start-up' | 'statement',
    message: string,
    code: PoolerCode = '08P01',
  ): Promise<string> {
    const refusal = Buffer.from(`SFATAL\0C${code}\0M${message}\0\0`)
    const told = (kind: string, body: Buffer) => {
      const size = Buffer.alloc(4)
      size.writeInt32BE(body.length + 4)
      return Buffer.concat([Buffer.from(kind), size, body])
    }
    const server = createServer((socket) => {
      let pieces = 0
      socket.on('error', () => {})
      socket.on('data', () => {
        if (pieces++ === 0 && phase === 'statement') {
          socket.write(Buffer.concat([told('R', Buffer.alloc(4)), told('Z', Buffer.from('I'))]))
        } else socket.end(told('E', refusal))
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    ends.push(async () => server.close())
    const address = server.address()
    return `postgres://user@127.0.0.1:${typeof address === 'object' ? address?.port : ''}/app`
  }

  const messages = ['query_wait_timeout', 'unsupported startup parameter: lock_timeout', 'something new']
  const full = 'MaxClientsInSessionMode: max clients reached'
  // postgres.js first asks for the types of a new statement, without its parameters.
  const clients = [
    ['node-postgres', 'OUTCOME_UNKNOWN', (at: string) => openPool(at).db],
    [
      'postgres.js',
      'UNREACHABLE',
      (at: string) => {
        const client = postgres(at, { max: 1, fetch_types: false })
        ends.push(() => client.end({ timeout: 0 }))
        return drizzlePostgresJs({ client })
      },
    ],
  ] as const
  const calls = {
    limit: (ratelimit: Ratelimit) => ratelimit.limit(SECRET),
    limitAll: (ratelimit: Ratelimit) => limitAll([{ ratelimit, key: SECRET }]),
  }
  const cases = clients.flatMap(([driver, code, open]) =>
    Object.entries(calls).flatMap(([name, call]) =>
      messages.map((message) => ({ driver, code, open, name, call, message })),
    ),
  )
  const on = (db: Database) => new Ratelimit({ ...direct, db, prefix: 'poolers' })

  test.each(cases)('$driver, $name, $message at start-up: UNREACHABLE', async ({ open, call, message }) => {
    const ratelimit = on(open(await pooler('start-up', message)))
    expect(await errorOf(call(ratelimit))).toMatchObject({ code: 'UNREACHABLE', sqlState: '08P01' })
  })

  test.each(clients)('%s, XX000 of a full Supavisor at start-up: UNREACHABLE', async (_, _code, open) => {
    const db = open(await pooler('start-up', full, 'XX000'))
    const refused = { code: 'UNREACHABLE', sqlState: 'XX000' }
    expect(await errorOf(on(db).limit(SECRET))).toMatchObject(refused)
    const recorded = new Ratelimit({ ...direct, db, prefix: 'poolers', use: [ledger(async () => {})] })
    expect(await errorOf(recorded.limit(SECRET))).toMatchObject(refused)
  })

  test.each(clients)(
    '%s, XX000 of Supavisor to a statement: it may have lost the server',
    async (_, code, open) => {
      const db = open(await pooler('statement', 'DbHandler exited', 'XX000'))
      expect(await errorOf(on(db).limit(SECRET))).toMatchObject({ code })
    },
  )

  test.each(cases)(
    '$driver, $name, $message to a statement: $code',
    async ({ open, call, message, code }) => {
      const ratelimit = on(open(await pooler('statement', message)))
      expect(await errorOf(call(ratelimit))).toMatchObject({ code })
    },
  )
})
