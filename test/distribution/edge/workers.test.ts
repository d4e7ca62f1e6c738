import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { serveDatabases } from './http-database.ts'
import { startWorker, type Worker } from './start-worker.ts'

// Slow: it starts workerd, the runtime of Cloudflare Workers.

/** The oldest date that node-postgres can be used with, and one of today. */
const DATES = ['2024-09-23', '2026-03-01']

describe.each(DATES)('a Worker of compatibility date %s', (date) => {
  let worker: Worker
  let database: TestDatabase
  const stops: (() => Promise<unknown>)[] = []

  beforeAll(async () => {
    database = await emptyDatabase()
    await migrate(database)
    const empty = await emptyDatabase()
    const poolOf = ({ url }: TestDatabase) => new pg.Pool({ connectionString: url, max: 8 })
    const pools = { '/migrated': poolOf(database), '/slowly': poolOf(database), '/empty': poolOf(empty) }
    const http = await serveDatabases(pools)
    worker = await startWorker(date, {
      HTTP_DATABASE: http.url,
      HYPERDRIVE: { connectionString: database.url },
    })
    stops.push(worker.stop, http.stop)
    stops.push(() => Promise.all(Object.values(pools).map((pool) => pool.end())))
    stops.push(database.close, empty.close)
  })
  afterAll(async () => {
    for (const stop of stops) await stop()
  })

  /** How many of the requests at once got each status. */
  async function statuses(requests: number, path: string): Promise<Record<string, number>> {
    const counts: Record<string, number> = {}
    const answers = await Promise.all(Array.from({ length: requests }, () => worker.get(path)))
    for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
    return counts
  }

  describe.each(['http', 'tcp'])('over %s', (way) => {
    test('requests at once on a new key and on a known one get exactly the limit, and no error', async () => {
      expect(await statuses(50, `/${way}?key=one`)).toEqual({ 200: 20, 429: 30 })
      expect(await statuses(50, `/${way}?key=one`)).toEqual({ 429: 50 })
    })

    test('requests at once on several keys get exactly the limit on each', async () => {
      const keys = ['a', 'b', 'c', 'd']
      const counts = await Promise.all(keys.map((key) => statuses(25, `/${way}?key=${key}`)))
      expect(counts).toEqual(keys.map(() => ({ 200: 20, 429: 5 })))
    })
  })

  test('a reservation is settled by its name', async () => {
    expect(await statuses(1, '/settled?key=one')).toEqual({ 200: 1 })
    expect(await statuses(1, '/settled?key=one')).toEqual({ 429: 1 })
  })

  test('limitAll over tcp: all or none', async () => {
    expect(await statuses(25, '/all?key=one')).toEqual({ 200: 20, 429: 5 })
    expect(await statuses(25, '/all?key=other')).toEqual({ 200: 10, 429: 15 })
  })

  test('a Hono app counts failures only, and gives successes back before its response', async () => {
    for (let i = 0; i < 3; i++) {
      expect(await worker.get('/hono/200?key=2001:db8::1')).toMatchObject({ status: 200 })
    }
    expect(await statuses(10, '/hono/401?key=2001:db8::2')).toEqual({ 401: 2, 429: 8 })
    const { text } = await worker.get('/hono/200?key=2001:db8::1')
    expect(JSON.parse(text)).toMatchObject({ status: 429, 'violated-policies': ['hono'] })
  })

  test('with coalescing requests wait for each other forever, and workerd ends them', async () => {
    expect(await worker.get('/coalesced?key=one')).toMatchObject({ status: 200 })
    const { 500: hung = 0 } = await statuses(6, '/coalesced?key=one')
    expect(hung).toBeGreaterThan(0)
  })

  test('the first requests at once create the tables without waiting for each other', async () => {
    expect(await statuses(10, '/first?key=one')).toEqual({ 200: 10 })
  })

  test('a database that does not answer: onError answers after the timeout', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => worker.get('/slow?key=one')))
    for (const { text } of answers) expect(text).toContain('"degraded":true')
  })

  test('waitUntil keeps a sweep that the end of its request would cut off', async () => {
    await database.rows(`insert into rate_limit_ephemeral (prefix, key, expires_at)
      select prefix, key::text, now() - interval '1 hour'
      from unnest(array['cut sweep', 'kept sweep']) as prefix, generate_series(1, 50) as key`)
    const left = async (prefix: string) => {
      const [row] = await database.rows(
        'select count(*)::int as rows from rate_limit_ephemeral where prefix = $1',
        [prefix],
      )
      return row?.['rows']
    }
    await worker.get('/cut sweep?key=one')
    await worker.get('/kept sweep?key=one')
    await vi.waitFor(async () => expect(await left('kept sweep')).toBe(1), PATIENTLY)
    expect(await left('cut sweep')).toBe(51)
  })
})
