import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { statusesOf } from '../../http/routes/serve.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'
import { serveDatabases } from '../edge/http-database.ts'
import { type Application, startNext } from './start-next.ts'

// The middleware in test/distribution/packed/next-edge, which Next runs in its edge runtime.

let database: TestDatabase
let app: Application
let stop: () => Promise<void>

beforeAll(async () => {
  database = await emptyDatabase()
  const { storageSql, tableSql } = await import('../../../src/index.ts')
  await database.script([...tableSql(), ...storageSql()].join(';'))
  const pool = new pg.Pool({ connectionString: database.url })
  const http = await serveDatabases({ '/edge': pool })
  stop = async () => {
    await http.stop()
    await pool.end()
  }
  app = await startNext('next-edge', { HTTP_DATABASE: `${http.url}/edge` })
})

afterAll(async () => {
  await stop?.()
  await database?.close()
})

test('the build warns of no API that the edge runtime lacks', () => {
  expect(app.built).not.toMatch(/Edge Runtime|getBuiltinModule/)
})

test('a middleware of the edge runtime limits requests', async () => {
  const headers = { 'x-api-key': 'ada' }
  const served = await fetch(app.url, { headers })
  expect([served.status, served.headers.get('ratelimit-policy')]).toEqual([200, '"edge";q=2;w=3600'])
  expect(await statusesOf(5, () => fetch(app.url, { headers }))).toEqual({ 200: 1, 429: 4 })
})
