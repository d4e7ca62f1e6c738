import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { citus } from 'drizzle-ratelimit/citus'
import { ledger } from 'drizzle-ratelimit/ledger'
import pg from 'pg'
import { afterEach, expect, test, vi } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { spend } from '../../src/quota/index.ts'
import { useDatabase } from '../support/databases.ts'
import { errorOf, limiter, newPrefix, openPool, outcomeOf, SECRET, usePools } from './kit.ts'

// Calls of several statements, of which one fails or comes late. Each caller is told what was charged.

const database = useDatabase()
const server = usePools(database)
const common = { cleanupProbability: 0, limiter } as const
/** A busy machine answers sooner. */
const PATIENCE_MS = 1_000
const ends: (() => unknown)[] = []

afterEach(async () => {
  vi.restoreAllMocks()
  for (const end of ends.splice(0)) await end()
})

async function usedOf(prefix: string, key = SECRET): Promise<number> {
  return (await new Ratelimit({ ...common, db: database.db, prefix }).getRemaining(key)).used
}

type Send = () => Promise<pg.QueryResult>

/** Comes between a pool and its statements. */
function intercept(pool: pg.Pool, query: (send: Send, text: string) => Promise<unknown>): void {
  const send = pool.query.bind(pool) as (...sent: unknown[]) => Promise<pg.QueryResult>
  vi.spyOn(pool, 'query').mockImplementation(async (...sent: unknown[]) => {
    const [statement] = sent as [string | { readonly text: string }]
    return query(() => send(...sent), typeof statement === 'string' ? statement : statement.text)
  })
}

function both(ratelimit: Ratelimit, key: string) {
  return limitAll([key, `${key} too`].map((each) => ({ ratelimit, key: each, rate: 2 })))
}

test('the time of a charged list is over while an empty row is removed: OUTCOME_UNKNOWN', async () => {
  const { db, pool } = openPool(server.url, { max: 1 })
  const prefix = newPrefix('told')
  const paying = new Ratelimit({ ...common, db, prefix, timeout: PATIENCE_MS })
  await paying.limit(SECRET)
  const credits = new Credits({ db, prefix: newPrefix('told'), durable: false, timeout: PATIENCE_MS })
  intercept(pool, async (send, text) => {
    if (/delete from/.test(text)) pool.connect().then((client) => ends.push(() => client.release()))
    return send()
  })
  const requests = [paying, credits].map((ratelimit) => ({ ratelimit, key: SECRET }))
  expect(await errorOf(spend(requests, { rate: 3 }))).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(await usedOf(prefix)).toBe(4)
})

test('of lists that share a statement, a failure of the next one fails only those that it was for', async () => {
  const { db, pool } = openPool(server.url)
  const prefix = newPrefix('told')
  const ratelimit = new Ratelimit({ ...common, db, prefix })
  for (const key of ['known', 'known too']) await ratelimit.limit(key, { rate: 2 })
  let sent = 0
  intercept(pool, async (send) => {
    if (++sent > 1) throw Object.assign(new Error('away'), { code: 'ECONNREFUSED' })
    return send()
  })
  const [known, unknown] = [both(ratelimit, 'known'), errorOf(both(ratelimit, 'new'))]
  expect(await unknown).toMatchObject({ code: 'UNREACHABLE' })
  expect(await known).toMatchObject({ success: true })
  expect(await Promise.all(['known', 'new'].map((key) => usedOf(prefix, key)))).toEqual([4, 0])
})

test('a list that is decided is told so before others that share its statement need the next one', async () => {
  const { db, pool } = openPool(server.url)
  const ratelimit = new Ratelimit({ ...common, db, prefix: newPrefix('told') })
  for (const key of ['known', 'known too']) await ratelimit.limit(key, { rate: 2 })
  const told: string[] = []
  let sent = 0
  intercept(pool, async (send) => {
    if (++sent > 1) await known
    return send()
  })
  const known = both(ratelimit, 'known').then(() => told.push('known'))
  await both(ratelimit, 'new').then(() => told.push('new'))
  expect(told).toEqual(['known', 'new'])
})

test('a ledger that hides the error of a statement: ENTRIES_FAILED, and nothing is charged', async () => {
  const { db } = openPool(server.url)
  const prefix = newPrefix('told')
  const hides = ledger(async (tx) => {
    await Promise.resolve(tx.execute(sql`select 1 / 0`)).catch(() => {})
  })
  const ratelimit = new Ratelimit({ ...common, db, prefix, use: [hides] })
  for (const call of [() => ratelimit.limit(SECRET), () => both(ratelimit, SECRET)])
    expect(await errorOf(call())).toMatchObject({ code: 'ENTRIES_FAILED' })
  expect(await usedOf(prefix)).toBe(0)
})

test('on a single client, a transaction that is rolled back takes no other charge with it', async () => {
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  ends.push(() => client.end())
  const db = drizzle({ client })
  const prefix = newPrefix('told')
  const ratelimit = new Ratelimit({ ...common, db, prefix })
  await ratelimit.limit(SECRET)
  let other: Promise<string> | undefined
  const refuses = ledger(async (tx) => {
    other = outcomeOf(ratelimit.limit(SECRET))
    for (let i = 0; i < 5; i++) await tx.execute(sql`select 1`)
    throw new Error('refused')
  })
  const refusing = new Ratelimit({ ...common, db, prefix, use: [refuses] })
  expect(await errorOf(refusing.limit('refused'))).toMatchObject({ code: 'ENTRIES_FAILED' })
  expect(await other).toBe('granted')
  expect(await usedOf(prefix)).toBe(2)
})

test.each([
  ['is refused', "do $$ begin raise exception using errcode = '42501'; end $$"],
  ['meets a deadlock', "do $$ begin raise exception using errcode = '40P01'; end $$"],
])('with citus(), removing an empty row %s: what was charged is told, once', async (_, failure) => {
  const { db, pool } = openPool(server.url)
  const prefix = newPrefix('told')
  const ratelimit = new Ratelimit({ ...common, db, prefix, use: [citus()] })
  await ratelimit.limit('known')
  intercept(pool, async (send, text) => (/delete from/.test(text) ? database.rows(failure) : send()))
  const outcomes = [ratelimit.limit('new', { rate: 2 }), ratelimit.limit('too much', { rate: 101 })]
  expect(await Promise.all(outcomes.map(outcomeOf))).toEqual(['granted', 'denied'])
  expect(await usedOf(prefix, 'new')).toBe(2)
})

test('a refund of dated credits loses its second answer: OUTCOME_UNKNOWN', async () => {
  const { db, pool } = openPool(server.url)
  const prefix = newPrefix('told')
  const of = { prefix, dated: true, durable: false, cleanupProbability: 0 } as const
  const [credits, others] = [new Credits({ ...of, db }), new Credits({ ...of, db: database.db })]
  await credits.grant(SECRET, 5, { id: 'one', priority: 1 })
  await credits.grant(SECRET, 5, { id: 'two', priority: 2 })
  await credits.limit(SECRET, { rate: 8 })
  let sent = 0
  intercept(pool, async (send) => {
    const answer = await send()
    // Others give back to the grants that were found.
    if (++sent === 1) await others.limit(SECRET, { rate: -3 })
    if (sent === 4) throw new Error('Connection terminated unexpectedly')
    return answer
  })
  expect(await errorOf(credits.limit(SECRET, { rate: -6 }))).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
})
