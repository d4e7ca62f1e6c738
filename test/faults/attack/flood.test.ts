import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { tell } from '../../support/happened.ts'

// One client that calls as often as it can.

let database: TestDatabase
let pool: pg.Pool
beforeAll(async () => {
  database = await emptyDatabase()
  await migrate(database)
  pool = new pg.Pool({ connectionString: database.url, max: 10 })
  pool.on('error', () => {})
})
afterAll(async () => {
  await pool.end()
  await database.close()
})

test('a flood of one key gets exactly its limit', async () => {
  const limiter = Ratelimit.fixedWindow(5, '1h')
  const api = new Ratelimit({ db: drizzle({ client: pool }), limiter, prefix: 'flood' })
  const calls = await Promise.allSettled(Array.from({ length: 5_000 }, () => api.limit('one')))
  const answers = calls.filter((call) => call.status === 'fulfilled').map(({ value }) => value)
  expect(answers.filter(({ success }) => success).length).toBe(5)
  // More than a thousand of one key do not wait.
  const refused = calls.filter((call) => call.status === 'rejected').map(({ reason }) => reason.code)
  expect(new Set(refused)).toEqual(new Set(['OVERLOADED']))
  tell('a flood of one key', 'denied', answers.length - 5)
  tell('a flood of one key', 'OVERLOADED', refused.length)
})
