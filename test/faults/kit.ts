import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, inject } from 'vitest'
import {
  type Database,
  type Limiter,
  type LimitResult,
  limitAll,
  Ratelimit,
  RatelimitError,
  type RatelimitErrorCode,
} from '../../src/index.ts'
import { Quota } from '../../src/quota/index.ts'
import type { TestDatabase } from '../support/databases.ts'
import { tell } from '../support/happened.ts'
import { FaultyProxy } from '../support/proxy.ts'

/** No message may tell this. */
export const SECRET = 'alice@example.com'

export const limiter: Limiter = Ratelimit.fixedWindow(100, '1h')

export interface Pool {
  readonly db: Database & { transaction: ReturnType<typeof drizzle>['transaction'] }
  readonly pool: pg.Pool
  readonly url: string
}

const pools: pg.Pool[] = []
const clients: pg.PoolClient[] = []

export function openPool(url: string, config: pg.PoolConfig = {}): Pool {
  const pool = new pg.Pool({ connectionString: url, max: 4, ...config })
  // A connection that breaks while idle. Those in use are not the application's to listen to.
  pool.on('error', () => {})
  pool.on('connect', (client) => clients.push(client))
  pools.push(pool)
  return { db: drizzle({ client: pool }), pool, url }
}

/** Where a test's database is. */
export async function urlOf(database: TestDatabase): Promise<string> {
  const [row] = await database.rows('select current_database() as name')
  const url = new URL(inject('serverUrl'))
  url.pathname = `/${row?.['name']}`
  return url.href
}

/**
 * Ends backends.
 *
 * @param which What follows `from` in a query for their `pid`.
 * @returns How many there were.
 */
export async function endBackends(database: TestDatabase, which: string): Promise<number> {
  const { length } = await database.rows(`select pg_terminate_backend(pid) from ${which}`)
  tell('backends', 'ended', length)
  return length
}

/** The URL of a test's database. The pools that a test opens end with it. */
export function usePools(database: TestDatabase): { readonly url: string } {
  let url = ''
  beforeAll(async () => {
    url = await urlOf(database)
  })
  afterEach(endPools)
  return {
    get url() {
      return url
    },
  }
}

/** A network in front of a test's database, and the URL there. After each test it is as it was. */
export function useProxy(database: TestDatabase): { readonly proxy: FaultyProxy; readonly url: string } {
  const direct = usePools(database)
  let proxy: FaultyProxy | undefined
  const started = () => proxy ?? expect.fail('The proxy starts before the first test.')
  beforeAll(async () => {
    proxy = await FaultyProxy.start(direct.url)
  })
  afterEach(async () => {
    started().fault = () => 'pass'
    await started().welcome('accept')
  })
  afterAll(() => started().close())
  return {
    get proxy() {
      return started()
    },
    get url() {
      return started().through(direct.url)
    },
  }
}

/** How much of a key is used, by its row. */
export async function usedOf(database: TestDatabase, prefix: string, key: string): Promise<number> {
  const query = 'select count::int from rate_limit_ephemeral where prefix = $1 and key = $2'
  const [row] = await database.rows(query, [prefix, key])
  return Number(row?.['count'] ?? 0)
}

/**
 * Ends the pools of a test. A pool that has lost a connection does not end, and that connection must not end
 * the run.
 */
export async function endPools(): Promise<void> {
  for (const client of clients.splice(0)) client.on('error', () => {})
  const ends = pools.splice(0).map((pool) => (pool.ending ? undefined : pool.end().catch(() => {})))
  await Promise.race([Promise.all(ends), new Promise((resolve) => setTimeout(resolve, 2000))])
}

export function limiterOn({ db }: Pick<Pool, 'db'>, prefix: string, durable = false): Quota {
  return new Quota({ db, limiter, prefix, durable, cleanupProbability: 0 })
}

/** Two ways to take one unit of a key. */
export function limit(ratelimit: Ratelimit): Promise<LimitResult> {
  return ratelimit.limit(SECRET)
}

export function limitAllOn(ratelimit: Ratelimit, tx?: Database): Promise<{ readonly success: boolean }> {
  return limitAll([{ ratelimit, key: SECRET }], { tx })
}

export type Outcome = 'granted' | 'denied' | RatelimitErrorCode

/**
 * The answer of a call. An error is a `RatelimitError` without the key and the database's address.
 */
export async function outcomeOf(call: PromiseLike<{ readonly success: boolean }>): Promise<Outcome> {
  try {
    return (await call).success ? 'granted' : 'denied'
  } catch (error) {
    return expectDiscreet(error).code
  }
}

export async function errorOf(call: PromiseLike<unknown>): Promise<RatelimitError> {
  const reason = await call.then(
    () => undefined,
    (error: unknown) => error,
  )
  return expectDiscreet(reason)
}

function expectDiscreet(error: unknown): RatelimitError {
  if (!(error instanceof RatelimitError)) throw new Error('no RatelimitError', { cause: error })
  for (const told of [error.message, error.stack ?? '']) {
    expect(told).not.toContain(SECRET)
    expect(told).not.toMatch(/postgres(ql)?:[/][/]|127[.]0[.]0[.]1|password/)
  }
  return error
}

/** How many outcomes say so. */
export function count(outcomes: readonly Outcome[], outcome: Outcome): number {
  return outcomes.filter((each) => each === outcome).length
}

/** Granted <= used <= granted + unknown, and the limit. */
export function expectExact(outcomes: readonly Outcome[], used: number, limit = 100): void {
  const granted = count(outcomes, 'granted')
  expect(used).toBeGreaterThanOrEqual(granted)
  expect(used).toBeLessThanOrEqual(granted + count(outcomes, 'OUTCOME_UNKNOWN'))
  expect(used).toBeLessThanOrEqual(limit)
}

/** No connection is lost: each one is idle again. */
export async function expectQuiet({ pool }: Pool): Promise<void> {
  await expect.poll(() => [pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([0, 0])
  tell('pools', 'that have lost no connection')
}

/** Errors that would have ended the process while `work` was done. */
export async function uncaughtBy(work: () => Promise<unknown>): Promise<unknown[]> {
  const events = ['uncaughtException', 'unhandledRejection'] as const
  const before = events.map((event) => process.rawListeners(event))
  const uncaught: unknown[] = []
  for (const event of events) {
    process.removeAllListeners(event)
    process.on(event, (error: unknown) => uncaught.push(error))
  }
  try {
    await work()
    await new Promise((resolve) => setTimeout(resolve, 20))
  } finally {
    for (const [i, event] of events.entries()) {
      process.removeAllListeners(event)
      for (const listener of before[i] ?? []) process.on(event, listener as () => void)
    }
  }
  return uncaught
}

let prefixes = 0
/** A prefix without rows, also if the test is tried again: what it charged before would fail it again. */
export function newPrefix(name: string): string {
  return `${name} ${++prefixes}`
}

/** Tries until a call is granted, as the next calls of an application would. */
export async function recovers(call: () => PromiseLike<{ readonly success: boolean }>): Promise<void> {
  await expect.poll(() => outcomeOf(call()), { timeout: 30_000, interval: 50 }).toBe('granted')
}
