// Run by Jest in a CommonJS project.

const { drizzle } = require('drizzle-orm/node-postgres')
const {
  checkTables,
  Ratelimit,
  RatelimitError,
  storageSql,
  tableSql,
  limitAll,
} = require('drizzle-ratelimit')
const { calendarWindow } = require('drizzle-ratelimit/calendar')
const { Semaphore } = require('drizzle-ratelimit/semaphore')
const { Pool } = require('pg')

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
afterAll(() => pool.end())

test('limits', async () => {
  const db = drizzle({ client: pool })
  const api = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(2, '1m'), prefix: 'api' })
  const month = new Ratelimit({ db, limiter: calendarWindow(5, 'month'), prefix: 'month' })
  const missing = await api.limit('key').catch((error) => error)
  expect(missing).toBeInstanceOf(RatelimitError)
  expect(missing.code).toBe('MISSING_TABLE')
  for (const statement of [...tableSql(), ...storageSql()]) await pool.query(statement)
  expect(await checkTables(db)).toEqual([])

  const both = [api, month].map((ratelimit) => ({ ratelimit, key: 'key' }))
  expect((await limitAll(both)).success).toBe(true)
  expect((await limitAll(both)).success).toBe(true)
  expect(await limitAll(both)).toMatchObject({ success: false, denied: [both[0]] })
  expect(await month.getRemaining('key')).toMatchObject({ limit: 5, remaining: 3 })
  expect(await api.blockUntilReady('key', 0)).toMatchObject({ success: false })

  const reserved = await month.reserve('key', { rate: 3 })
  expect(await reserved.commit(1)).toMatchObject({ remaining: 2 })
  await month.resetUsedTokens('key')
  expect(await month.limit('key', { rate: 5 })).toMatchObject({ success: true, remaining: 0 })
  expect(await month.cleanup()).toBe(0)

  const exports = new Semaphore({ db, prefix: 'exports', limit: 1, lease: '1m' })
  const job = await exports.acquire('key')
  expect(await exports.holders('key')).toMatchObject([{ slot: 1, fence: job.fence }])
  expect(await exports.acquire('key')).toMatchObject({ success: false })
  expect(await job.release()).toBe(true)
  expect(await exports.holders('key')).toEqual([])

  const migrating = new Ratelimit({ db, limiter: Ratelimit.gcra(5, '1m'), prefix: 'own', autoMigrate: true })
  expect(await migrating.limit('key')).toMatchObject({ success: true, remaining: 4 })
})
