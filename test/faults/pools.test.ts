import { randomUUID } from 'node:crypto'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { describe, expect, test } from 'vitest'
import { useDatabase } from '../support/databases.ts'
import { holdRows } from '../support/locks.ts'
import { undone } from '../support/undone.ts'
import {
  errorOf,
  expectQuiet,
  limit,
  limitAllOn,
  limiterOn,
  newPrefix,
  openPool,
  outcomeOf,
  type Pool,
  SECRET,
  uncaughtBy,
  usePools,
} from './kit.ts'

const database = useDatabase()
const direct = usePools(database)

/** A pool whose sessions have a setting of the server. */
function openWith(setting: string): Pool {
  const other = new URL(direct.url)
  other.searchParams.set('options', `-c ${setting}`)
  return openPool(other.href)
}

describe.each(Object.entries({ limit, limitAll: limitAllOn }))('%s', (way, call) => {
  test('a full pool: UNREACHABLE after its connect time-out, and nothing is charged', async () => {
    const opened = openPool(direct.url, { max: 1, connectionTimeoutMillis: 1000 })
    const ratelimit = limiterOn(opened, newPrefix(`full ${way}`))
    await ratelimit.limit(SECRET)
    const taken = await opened.pool.connect()
    expect(await outcomeOf(call(ratelimit))).toBe('UNREACHABLE')
    taken.release()
    expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
    await expectQuiet(opened)
  })

  test('a full pool without a time-out: the call waits, and is charged once', async () => {
    const opened = openPool(direct.url, { max: 1 })
    const ratelimit = limiterOn(opened, newPrefix(`waits ${way}`))
    const taken = await opened.pool.connect()
    const waiting = call(ratelimit)
    await expect.poll(() => opened.pool.waitingCount).toBe(1)
    taken.release()
    expect(await waiting).toMatchObject({ success: true })
    expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used: 1 })
    await expectQuiet(opened)
  })

  test('a pool that was ended: UNREACHABLE', async () => {
    const opened = openPool(direct.url)
    const ratelimit = limiterOn(opened, newPrefix(`ended ${way}`))
    await opened.pool.end()
    expect(await outcomeOf(call(ratelimit))).toBe('UNREACHABLE')
  })

  test('the server has no connection left: UNREACHABLE, and later calls succeed', async () => {
    const role = `few_${randomUUID().replaceAll('-', '')}`
    await database.script(`create role ${role} login password 'postgres' connection limit 0;
      grant select, insert, update, delete on rate_limit_ephemeral to ${role}`)
    const other = new URL(direct.url)
    other.username = role
    const opened = openPool(other.href)
    const ratelimit = limiterOn(opened, newPrefix(`few ${way}`))
    const uncaught = await uncaughtBy(async () => {
      expect(await errorOf(call(ratelimit))).toMatchObject({ code: 'UNREACHABLE', sqlState: '53300' })
    })
    expect(uncaught).toEqual([])
    await database.script(`alter role ${role} connection limit 5`)
    expect(await call(ratelimit)).toMatchObject({ success: true })
    await expectQuiet(opened)
  })

  test.each([
    ['statement_timeout=1000', '57014'],
    ['lock_timeout=1000', '55P03'],
  ])(
    '%s ends a check that waits for a row: nothing is charged, and the next one goes on',
    async (setting, sqlState) => {
      const opened = openWith(setting)
      const prefix = newPrefix(`${setting} ${way}`)
      const ratelimit = limiterOn(opened, prefix)
      await ratelimit.limit(SECRET)
      const holder = await holdRows(database, prefix)
      expect(await errorOf(call(ratelimit))).toMatchObject({ code: 'DATABASE', sqlState })
      await holder.query('rollback')
      expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
      await expectQuiet(opened)
    },
  )
})

test('a pool behind a proxy that only reads: a call that waits for a row delays no other', async () => {
  const { pool } = openPool(direct.url)
  const get = (_: object, name: string | symbol) => {
    const value = Reflect.get(pool, name)
    return typeof value === 'function' ? value.bind(pool) : value
  }
  const client = new Proxy<typeof pool>(pool, { get, has: () => false })
  const proxied = { db: drizzle({ client }) }
  const held = newPrefix('held')
  const [waiting, other] = [limiterOn(proxied, held), limiterOn(proxied, newPrefix('free'))]
  await waiting.limit(SECRET)
  const holder = await holdRows(database, held)
  const late = waiting.limit(SECRET)
  await expect.poll(() => database.rows('select 1 from pg_locks where not granted')).not.toEqual([])
  expect(await outcomeOf(other.limit(SECRET))).toBe('granted')
  await holder.query('rollback')
  expect(await outcomeOf(late)).toBe('granted')
})

test("the server's time-out ends an idle holder: the waiting calls go on, and its charge is undone", async () => {
  const opened = openPool(direct.url)
  const prefix = newPrefix('idle')
  const ratelimit = limiterOn(opened, prefix)
  await ratelimit.limit(SECRET)
  const holder = openWith('idle_in_transaction_session_timeout=200')
  const uncaught = await uncaughtBy(async () => {
    const client = await holder.pool.connect()
    client.on('error', () => {})
    // At once: between two statements the time-out might end it on a busy machine.
    await client.query(`begin; update rate_limit_ephemeral set count = count + 10 where prefix = '${prefix}'`)
    expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
    client.release(true)
  })
  expect(uncaught).toEqual([])
  await expectQuiet(opened)
})

test("a caller's rollback, on purpose or by a fault, undoes the charge and frees the row", async () => {
  const opened = openPool(direct.url)
  const ratelimit = limiterOn(opened, newPrefix('rollback'))
  await ratelimit.limit(SECRET)
  await undone(opened.db, async (tx) => {
    expect(await ratelimit.limit(SECRET, { rate: 5, tx })).toMatchObject({ success: true, remaining: 94 })
    expect(await limitAllOn(ratelimit, tx)).toMatchObject({ success: true })
  })
  const byFault = opened.db.transaction(async (tx) => {
    await ratelimit.limit(SECRET, { rate: 5, tx })
    await ratelimit.limit('\u0000', { tx }).catch(() => {})
    // Refused before any SQL, so the transaction goes on.
    await ratelimit.limit(SECRET, { rate: 5, tx })
    await tx.execute(sql`select 1 / 0`)
  })
  await expect(byFault).rejects.toThrow()
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})
