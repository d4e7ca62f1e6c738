import { randomUUID } from 'node:crypto'
import { sql } from 'drizzle-orm'
import { afterAll, beforeEach, expect, test } from 'vitest'
import { checkTables, Ratelimit, rateLimitTables, storageSql, tableSql } from '../../src/index.ts'
import { type Db, open, useDatabase } from '../support/databases.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(10, '1h')
const id = randomUUID().replaceAll('-', '')
const [app, anon] = [`app_${id}`, `anon_${id}`]
const ends: (() => Promise<void>)[] = []
afterAll(async () => {
  for (const end of ends) await end()
})

const REFUSED = { code: 'DATABASE', message: expect.stringContaining('docs/privileges.md') }
let made = 0

/** Tables with row level security, open to both roles by default privileges, as on Supabase. */
let tables: ReturnType<typeof rateLimitTables>
let owner: Ratelimit
beforeEach(async () => {
  if (made === 0) {
    for (const role of [app, anon]) await database.script(`create role ${role} login password 'postgres'`)
    await database.script(`alter default privileges in schema public grant all on tables to ${app}, ${anon}`)
  }
  made++
  tables = rateLimitTables({ ephemeral: `quick_${made}`, durable: `slow_${made}`, rls: true })
  for (const statement of [...tableSql(tables), ...storageSql(tables)]) await database.script(statement)
  owner = limiterOn(database.db)
  await owner.limit('key', { rate: 9 })
})

function limiterOn(db: Db): Ratelimit {
  return new Ratelimit({ timeout: false, db, limiter, prefix: 'login', tables, cleanupProbability: 0 })
}

function as(role: string): Ratelimit {
  const url = new URL(database.url)
  url.username = role
  const { db, end } = open(url.href, 2)
  ends.push(end)
  return limiterOn(db)
}

async function policy(text: string): Promise<void> {
  await database.script(`create policy p_${randomUUID().slice(0, 8)} on quick_${made} ${text}`)
}

const looks: Record<string, (ratelimit: Ratelimit, key: string) => Promise<unknown>> = {
  getRemaining: (ratelimit, key) => ratelimit.getRemaining(key),
  getRemainingAll: (ratelimit, key) => ratelimit.getRemainingAll([key, 'another']),
  'limit with a rate of 0': (ratelimit, key) => ratelimit.limit(key, { rate: 0 }),
}

test.each(Object.entries(looks))('%s is refused while policies may hide rows', async (_, look) => {
  const ratelimit = as(app)
  for (const key of ['key', 'new']) await expect(look(ratelimit, key)).rejects.toMatchObject(REFUSED)
  await policy(`to ${app} using (key <> 'key')`)
  await expect(look(ratelimit, 'key')).rejects.toMatchObject(REFUSED)
  await look(owner, 'key')
  await policy(`to ${app} using (true)`)
  await look(ratelimit, 'key')
})

test('a role with a policy for all rows has every answer, and others have none', async () => {
  await policy(`to ${app} using (true) with check (true)`)
  const ratelimit = as(app)
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 1 })
  expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 0 })
  expect(await ratelimit.limit('key')).toMatchObject({ success: false })
  expect(await ratelimit.limit('new')).toMatchObject({ success: true, remaining: 9 })
  const other = as(anon)
  await expect(other.getRemaining('key')).rejects.toMatchObject(REFUSED)
  await expect(other.limit('key')).rejects.toMatchObject({ code: 'DATABASE', sqlState: '42501' })
  expect(await owner.getRemaining('key')).toMatchObject({ remaining: 0 })
})

test('in a transaction with a role of its own, the role counts', async () => {
  await policy(`to ${app} using (true)`)
  const url = new URL(database.url)
  url.username = app
  await database.script(`grant ${anon} to ${app}`)
  const { db, end } = open(url.href, 1)
  ends.push(end)
  const ratelimit = limiterOn(db)
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 1 })
  const joined = db.transaction(async (tx) => {
    await tx.execute(sql.raw(`set local role ${anon}`))
    return ratelimit.getRemaining('key', { tx })
  })
  await expect(joined).rejects.toMatchObject(REFUSED)
})

test('a role that the default privileges open the tables to can change nothing', async () => {
  const url = new URL(database.url)
  url.username = anon
  const { db, end } = open(url.href, 1)
  ends.push(end)
  const table = `quick_${made}`
  const changed = await Promise.all(
    [`delete from ${table} returning 1`, `update ${table} set count = 0 returning 1`].map(async (text) => {
      const result: unknown = await db.execute(sql.raw(text))
      return [...((result as { rows?: unknown[] }).rows ?? (result as unknown[]))]
    }),
  )
  expect(changed).toEqual([[], []])
  const insert = `insert into ${table} (prefix, key, expires_at) values ('login', 'x', now())`
  await expect(db.execute(sql.raw(insert))).rejects.toThrow()
  expect(await checkTables(database.db, tables)).toEqual([])
  await database.script(`alter table ${table} disable row level security`)
  const messages = (await checkTables(database.db, tables)).map(({ message }) => message)
  expect(messages).toEqual([
    `${table} should have row level security.`,
    expect.stringContaining(`${table} can be changed by ${anon}, ${app}: `),
  ])
})
