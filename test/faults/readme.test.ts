import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { sql } from 'drizzle-orm'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { holdRows } from '../support/locks.ts'
import { FaultyProxy } from '../support/proxy.ts'
import { endBackends, errorOf, limiter, type Pool, recovers, SECRET, uncaughtBy, urlOf } from './kit.ts'

// README's db.ts as it stands there. What breaks its connections must not end the process.

const database = useDatabase()
const CACHE = 'node_modules/.cache'
const VICTIMS = `pg_stat_activity where application_name = 'readme' and datname = current_database()`
type Db = Pool['db'] & { readonly $client: Pool['pool'] }
let proxy: FaultyProxy
let db: Db
let ratelimit: Ratelimit
let folder: string
const told: string[] = []

beforeAll(async () => {
  const direct = new URL(await urlOf(database))
  direct.searchParams.set('application_name', 'readme')
  proxy = await FaultyProxy.start(direct.href)
  vi.stubEnv('DATABASE_URL', proxy.through(direct.href))
  vi.spyOn(console, 'error').mockImplementation((...words) => void told.push(words.join(' ')))
  const [, block] = /^```ts\n(\/\/ db\.ts\n[\s\S]*?)^```/m.exec(await readFile('README.md', 'utf8')) ?? []
  await mkdir(CACHE, { recursive: true })
  folder = await mkdtemp(resolve(CACHE, 'readme-'))
  await writeFile(join(folder, 'db.ts'), block ?? '')
  db = (await import(join(folder, 'db.ts'))).db
  ratelimit = new Ratelimit({ db, limiter, prefix: 'readme', cleanupProbability: 0 })
  await ratelimit.limit(SECRET)
})
afterEach(() => {
  proxy.fault = () => 'pass'
  for (const line of told.splice(0)) {
    expect(line.length).toBeLessThan(120)
    expect(line).not.toMatch(/127\.0\.0\.1|postgres:\/\/|select|\n/)
  }
})
afterAll(async () => {
  vi.restoreAllMocks()
  vi.unstubAllEnvs()
  await db.$client.end()
  await proxy.close()
  await rm(folder, { recursive: true })
})

/** Breaks the connection of a transaction between two of its statements. */
async function breakInTransaction(breakIt: () => unknown): Promise<void> {
  const work = db.transaction(async (tx) => {
    await ratelimit.limit(SECRET, { tx })
    await breakIt()
    await new Promise((resolve) => setTimeout(resolve, 50))
    await tx.execute(sql`select 1`)
  })
  await expect(work).rejects.toThrow()
}

const used = async () => (await ratelimit.getRemaining(SECRET)).used

test.each([
  ['its backend is ended', () => endBackends(database, VICTIMS)],
  ['the network breaks', () => proxy.cutAll()],
])('%s between two statements of a transaction: the process goes on', async (_, breakIt) => {
  const before = await used()
  expect(await uncaughtBy(() => breakInTransaction(breakIt))).toEqual([])
  expect(told.length).toBeGreaterThan(0)
  await recovers(() => ratelimit.limit(SECRET))
  expect(await used()).toBe(before + 1)
})

test('idle connections are ended: the process goes on', async () => {
  const uncaught = await uncaughtBy(async () => {
    await endBackends(database, VICTIMS)
    await expect.poll(() => db.$client.totalCount).toBe(0)
  })
  expect(uncaught).toEqual([])
  expect(told.length).toBeGreaterThan(0)
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true })
})

test('a row that others hold, and a pool that is used up, end the wait', async () => {
  // Without a timeout of its own, so that each wait ends by what db.ts says.
  const patient = new Ratelimit({ db, limiter, prefix: 'readme', cleanupProbability: 0, timeout: false })
  const holder = await holdRows(database, 'readme')
  const held = await errorOf(patient.limit(SECRET))
  await holder.query('rollback')
  expect(held).toMatchObject({ code: 'DATABASE', sqlState: '55P03', contended: true })
  const clients = await Promise.all(Array.from({ length: 10 }, () => db.$client.connect()))
  const full = await errorOf(patient.limit(SECRET))
  for (const client of clients) client.release()
  expect(full).toMatchObject({ code: 'UNREACHABLE', message: expect.stringContaining('was free') })
  expect(await patient.limit(SECRET)).toMatchObject({ success: true })
})

test('a wait of db.ts ends before the timeout of a call, so that the error names the cause', () => {
  const DEFAULT_TIMEOUT_MS = 5000
  expect(db.$client.options.connectionTimeoutMillis).toBeLessThan(DEFAULT_TIMEOUT_MS)
  expect(db.$client.options.lock_timeout).toBeLessThan(DEFAULT_TIMEOUT_MS)
})
