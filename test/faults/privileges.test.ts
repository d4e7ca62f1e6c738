import { randomUUID } from 'node:crypto'
import { pgSchema } from 'drizzle-orm/pg-core'
import { block, lockout } from 'drizzle-ratelimit/lockout'
import { usage } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { checkTables, limitAll, Ratelimit, rateLimitTables } from '../../src/index.ts'
import { closePeriods, Quota, reserveAll, type SpendRequest, spend } from '../../src/quota/index.ts'
import { Semaphore } from '../../src/semaphore/index.ts'
import { emptyDatabase, useDatabase } from '../support/databases.ts'
import {
  endPools,
  errorOf,
  expectQuiet,
  limit,
  limitAllOn,
  limiter,
  openPool,
  type Pool,
  SECRET,
  urlOf,
} from './kit.ts'

const database = useDatabase()
const TABLES = 'rate_limit_ephemeral, rate_limit_durable'
const ALL = ['select', 'insert', 'update', 'delete'] as const
const partlyFilled = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 5 })
type Privilege = (typeof ALL)[number]
let url: string
beforeAll(async () => {
  url = await urlOf(database)
})
afterEach(endPools)

/** A pool of a new role that has these privileges on the two tables, and no others. */
async function openAs(privileges: readonly Privilege[]): Promise<Pool> {
  const role = `limiter_${randomUUID().replaceAll('-', '')}`
  await database.script(`create role ${role} login password 'postgres'`)
  if (privileges.length > 0) await database.script(`grant ${privileges.join()} on ${TABLES} to ${role}`)
  const other = new URL(url)
  other.username = role
  return openPool(other.href)
}

function make({ db }: Pool, durable: boolean): Quota {
  return new Quota({ db, limiter, prefix: 'privileges', durable, cleanupProbability: 0 })
}

/** Prepaid credits of the role's. */
function creditsOf({ db }: Pool): Credits {
  return new Credits({ db, prefix: 'credits', cleanupProbability: 0 })
}

/** A key that has a row, and one that has none. */
function requestsOf(ratelimit: Quota): SpendRequest[] {
  return ['known', randomUUID()].map((key) => ({ ratelimit, key }))
}

const slotsOn = (db: Pool['db']) =>
  new Semaphore({ db, limit: 9, lease: '1m', prefix: 'slots', cleanupProbability: 0 })

/** What each method needs of the tables: the table in docs/privileges.md. */
type Method = [readonly Privilege[], (ratelimit: Quota, opened: Pool) => Promise<unknown>]

const methods: Record<string, Method> = {
  limit: [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      await Promise.all(['known', 'other', randomUUID()].map((key) => ratelimit.limit(key)))
      for (const key of ['known', randomUUID()]) await ratelimit.limit(key)
    },
  ],
  'a refund to a known key': [['select', 'update'], (ratelimit) => ratelimit.limit('known', { rate: -1 })],
  reserve: [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const reserved = await ratelimit.reserve(randomUUID(), { rate: 5 })
      if (reserved.success) await reserved.commit(2)
    },
  ],
  'release of a reservation': [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const reserved = await ratelimit.reserve(randomUUID(), { rate: 5 })
      if (reserved.success) await reserved.release()
    },
  ],
  settle: [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const [key, id] = [randomUUID(), 'job']
      await ratelimit.reserve(key, { rate: 5, id, expires: '1h' })
      await ratelimit.settle({ key, id }, 2)
    },
  ],
  grant: [['select', 'insert', 'update'], (_, opened) => creditsOf(opened).grant(randomUUID(), 5)],
  blockUntilReady: [
    ['select', 'insert', 'update'],
    (ratelimit) => ratelimit.blockUntilReady(randomUUID(), 0),
  ],
  'a check in a transaction': [
    ['select', 'insert', 'update'],
    (ratelimit, { db }) => db.transaction((tx) => ratelimit.limit(randomUUID(), { tx })),
  ],
  limitAll: [['select', 'insert', 'update'], (ratelimit) => limitAll(requestsOf(ratelimit))],
  'limitAll that denies a new key': [
    ['select', 'insert', 'update'],
    (ratelimit) => limitAll([{ ratelimit, key: randomUUID(), rate: 101 }]),
  ],
  'reserveAll, and commit of what it reserved': [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const reserved = await reserveAll(requestsOf(ratelimit))
      if (reserved.success) await reserved.commit([0, 1])
    },
  ],
  'release of what reserveAll reserved': [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const reserved = await reserveAll(requestsOf(ratelimit))
      if (reserved.success) await reserved.release()
    },
  ],
  'reserveAll that denies a new key': [
    ['select', 'insert', 'update'],
    (ratelimit) => reserveAll([{ ratelimit, key: randomUUID(), rate: 101 }]),
  ],
  'spend, and its release': [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const keys = [randomUUID(), randomUUID()]
      const spent = await spend(
        keys.map((key) => ({ ratelimit, key })),
        { rate: 150 },
      )
      await spent.release()
    },
  ],
  'spend that takes nothing from a new key': [
    ['select', 'insert', 'update'],
    (ratelimit) => spend(requestsOf(ratelimit), { rate: 1 }),
  ],
  closePeriods: [
    ['select', 'update', 'delete'],
    async (_, { db }) => {
      await database.script(`insert into rate_limit_durable (prefix, key, count, window_start, expires_at)
        values ('ended', '${randomUUID()}', 5, now() - interval '2 hours', now() - interval '1 hour')`)
      return db.transaction((tx) => closePeriods({ db, prefix: 'ended', limiter, durable: true }, { tx }))
    },
  ],
  'schedule and its cancel': [
    ['select', 'insert', 'update'],
    async (_, { db }) => {
      const line = new Ratelimit({
        db,
        limiter: Ratelimit.gcra(1, '1m'),
        prefix: 'line',
        cleanupProbability: 0,
      })
      const key = randomUUID()
      for (let i = 0; i < 2; i++) {
        const turn = await schedule(line, key, { within: '1h' })
        if (turn.success) await turn.cancel()
      }
    },
  ],
  block: [
    ['select', 'insert', 'update'],
    async (_, { db }) => {
      const limiter = lockout(1, '1m', { block: '1m' })
      const logins = new Ratelimit({ db, limiter, prefix: 'lockout', cleanupProbability: 0 })
      const key = randomUUID()
      for (let i = 0; i < 2; i++) await block(logins, key, '1m')
    },
  ],
  'acquire, extend and release of a lease': [
    ['select', 'insert', 'update'],
    async (_, opened) => {
      const slots = slotsOn(opened.db)
      const lease = await slots.acquire(randomUUID())
      if (lease.success) await lease.extend()
      if (lease.success) await lease.release()
    },
  ],
  'holders of slots': [['select'], (_, opened) => slotsOn(opened.db).holders(randomUUID())],
  getRemaining: [['select'], (ratelimit) => ratelimit.getRemaining('known')],
  getRemainingAll: [['select'], (ratelimit) => ratelimit.getRemainingAll(['known', randomUUID()])],
  usage: [['select'], (_, { db }) => usage({ db, prefix: 'privileges', limiter, durable: true }, { top: 3 })],
  resetUsedTokens: [['select', 'delete'], (ratelimit) => ratelimit.resetUsedTokens(randomUUID())],
  'resetUsedTokens of a bucket that starts with less': [
    ['select', 'insert', 'update'],
    async (ratelimit) => {
      const key = randomUUID()
      for (let i = 0; i < 2; i++) await ratelimit.resetUsedTokens(key, { limiter: partlyFilled })
    },
  ],
  cleanup: [['select', 'update', 'delete'], (ratelimit) => ratelimit.cleanup()],
  checkTables: [[], (_, { db }) => checkTables(db)],
}

describe.each([false, true])('durable: %s', (durable) => {
  beforeAll(async () => {
    const owner = make(openPool(url), durable)
    for (const key of ['known', 'other']) await owner.limit(key)
  })

  test.each(Object.entries(methods))('%s needs exactly what is documented', async (_, [needed, call]) => {
    const opened = await openAs(needed)
    await call(make(opened, durable), opened)
    for (const missing of needed) {
      const lacking = await openAs(needed.filter((privilege) => privilege !== missing))
      const error = await errorOf(call(make(lacking, durable), lacking))
      expect(error).toMatchObject({ code: 'DATABASE', sqlState: '42501' })
      await expectQuiet(lacking)
    }
    await expectQuiet(opened)
  })
})

test('tables in a schema of their own need usage on the schema', async () => {
  await database.script('create schema limits')
  for (const table of TABLES.split(', '))
    await database.script(`create table limits.${table} (like ${table} including all)`)
  const opened = await openAs([])
  const role = new URL(opened.url).username
  await database.script(`grant select, insert, update, delete on all tables in schema limits to ${role}`)
  const tables = rateLimitTables({ schema: pgSchema('limits') })
  const ratelimit = new Ratelimit({ db: opened.db, limiter, prefix: 'schema', tables, cleanupProbability: 0 })
  expect(await errorOf(ratelimit.limit(SECRET))).toMatchObject({ code: 'DATABASE', sqlState: '42501' })
  await database.script(`grant usage on schema limits to ${role}`)
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 99 })
})

test('autoMigrate needs create on the schema', async () => {
  const empty = await emptyDatabase()
  const other = new URL(await urlOf(empty))
  other.username = new URL((await openAs([])).url).username
  const opened = openPool(other.href)
  const ratelimit = new Ratelimit({ db: opened.db, limiter, prefix: 'made', autoMigrate: true })
  await empty.script('revoke create on schema public from public')
  expect(await errorOf(ratelimit.limit(SECRET))).toMatchObject({ code: 'DATABASE', sqlState: '42501' })
  await empty.script(`grant create on schema public to ${other.username}`)
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 99 })
  await expectQuiet(opened)
  await endPools()
  await empty.close()
})

test('checks fail while a privilege is taken away, and succeed after it is given again', async () => {
  const opened = await openAs(ALL)
  const ratelimit = make(opened, false)
  await ratelimit.limit(SECRET)
  await database.script(`revoke update on ${TABLES} from ${new URL(opened.url).username}`)
  for (const way of [limit, limitAllOn]) {
    expect(await errorOf(way(ratelimit))).toMatchObject({ code: 'DATABASE', sqlState: '42501' })
  }
  await database.script(`grant update on ${TABLES} to ${new URL(opened.url).username}`)
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})

test('a failing sweep changes no check, and cleanup() throws its error', async () => {
  const opened = await openAs(['select', 'insert', 'update'])
  const ratelimit = new Ratelimit({ db: opened.db, limiter, prefix: 'sweep', cleanupProbability: 1 })
  for (let i = 1; i <= 5; i++) expect(await ratelimit.limit(SECRET)).toMatchObject({ remaining: 100 - i })
  expect(await errorOf(ratelimit.cleanup())).toMatchObject({ code: 'DATABASE', sqlState: '42501' })
  await expectQuiet(opened)
})
