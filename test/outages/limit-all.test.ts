import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { type Database, Ratelimit, type RatelimitConfig } from '../../src/index.ts'
import { type Db, hasServer, open, useDatabase } from '../support/databases.ts'
import { FaultyProxy } from '../support/proxy.ts'
import { watch } from '../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(5, '1h')
const uncaught = vi.fn()
beforeEach(() => void process.on('uncaughtException', uncaught))
afterEach(() => {
  process.off('uncaughtException', uncaught)
  expect(uncaught).not.toHaveBeenCalled()
})

function requests(db: Database, prefix: string) {
  const ratelimit = new Ratelimit({ db, limiter, prefix, cleanupProbability: 0 })
  return [
    { ratelimit, key: 'a' },
    { ratelimit, key: 'b' },
  ]
}

async function charged(prefix: string): Promise<unknown[]> {
  const found = await database.rows(
    `select key, count::int from rate_limit_ephemeral where prefix = '${prefix}' order by key`,
  )
  return found.map(({ count }) => count)
}

describe.runIf(hasServer())('alone, on a server', () => {
  let proxy: FaultyProxy
  let broken = 0
  beforeAll(async () => {
    proxy = await FaultyProxy.start(database.url)
  })
  afterAll(() => proxy.close())
  afterEach(() => {
    proxy.fault = () => 'pass'
  })

  test('its backend dies while it waits for a row: nothing was charged, and the process lives', async () => {
    const { db, end } = open(database.url, 1)
    const all = requests(db, 'dies')
    await Ratelimit.limitAll(all)
    const holder = await database.client()
    await holder.query(`begin; select 1 from rate_limit_ephemeral where prefix = 'dies' for update`)
    const waiting = Ratelimit.limitAll(all).catch((error: unknown) => error)
    const waiters = `select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    let waiter: unknown
    while (waiter === undefined) waiter = (await database.rows(waiters))[0]?.['pid']
    await database.rows(`select pg_terminate_backend(${waiter})`)
    expect(await waiting).toMatchObject({ code: 'UNREACHABLE' })
    await holder.query('rollback')
    expect(await charged('dies')).toEqual([1, 1])
    // postgres.js tells the next statement on a new connection of the old one's end.
    const again = await Ratelimit.limitAll(all).catch(() => Ratelimit.limitAll(all))
    expect(again).toMatchObject({ success: true })
    await end()
  })

  test.each([
    ['begin', /begin/, 'UNREACHABLE'],
    ['the lock', /insert into/, 'UNREACHABLE'],
    ['commit', /\bcommit\b/, 'OUTCOME_UNKNOWN'],
  ] as const)('its connections break at %s: the pool does not run dry', async (_, breaks, code) => {
    const { db, end } = open(proxy.through(database.url), 2)
    const prefix = `broken ${broken++}`
    const all = requests(db, prefix)
    proxy.fault = (request) => (breaks.test(request.toString('latin1')) ? 'cut before' : 'pass')
    for (let i = 0; i < 5; i++) await expect(Ratelimit.limitAll(all)).rejects.toMatchObject({ code })
    proxy.fault = () => 'pass'
    expect(await charged(prefix)).toEqual([])
    // The first answer ends the outage; then several go at once again.
    await Ratelimit.limitAll(all)
    await Promise.all([all, all].map((again) => Ratelimit.limitAll(again)))
    expect(await charged(prefix)).toEqual([3, 3])
    await end()
  })

  test.runIf(inject('driver') === 'node-postgres')(
    'a client that gives up waiting for a row is closed, with its transaction',
    async () => {
      const pool = new pg.Pool({ connectionString: database.url, max: 1, query_timeout: 200 })
      pool.on('error', () => {})
      const all = requests(drizzle({ client: pool }), 'gives up')
      await Ratelimit.limitAll(all)
      const holder = await database.client()
      await holder.query(`begin; select 1 from rate_limit_ephemeral where prefix = 'gives up' for update`)
      const sent = vi.spyOn(pg.Client.prototype, 'query')
      await expect(Ratelimit.limitAll(all)).rejects.toMatchObject({ code: 'UNREACHABLE' })
      expect(pool.totalCount).toBe(0)
      // A rollback would wait behind the statement that was given up.
      expect(JSON.stringify(sent.mock.calls.map(([query]) => query))).not.toContain('rollback')
      sent.mockRestore()
      await holder.query('rollback')
      await pool.end()
    },
  )

  test.runIf(inject('driver') === 'node-postgres')(
    'on a single client all or none is charged, and checks beside do not get into its transactions',
    async () => {
      const client = await database.client()
      const all = requests(drizzle({ client }), 'single')
      const beside = new Ratelimit({
        db: drizzle({ client }),
        limiter,
        prefix: 'beside',
        cleanupProbability: 0,
      })
      const sent = vi.spyOn(client, 'query')
      const [answers] = await Promise.all([
        Promise.all(Array.from({ length: 30 }, () => Ratelimit.limitAll(all))),
        Promise.all(Array.from({ length: 30 }, (_, i) => beside.limit(`key ${i}`))),
      ])
      expect(answers.filter(({ success }) => success)).toHaveLength(5)
      expect(await charged('single')).toEqual([5, 5])
      const texts = sent.mock.calls.map(([query]) =>
        typeof query === 'string' ? query : JSON.stringify(query),
      )
      let isOpen = false
      for (const text of texts) {
        if (/begin/.test(text)) {
          expect(isOpen).toBe(false)
          isOpen = true
        }
        if (/commit|rollback/.test(text)) isOpen = false
        // The checks keep their statements, and transactions do not.
        if (isOpen) expect(text).not.toMatch(/ratelimit_[0-9a-f]{32}/)
      }
      sent.mockRestore()
    },
  )

  test('it opens its transaction on the connection that it charges on', async () => {
    const { db, end } = open(database.url, 4)
    const all = requests(db, 'together')
    const answers = await Promise.all(Array.from({ length: 20 }, () => Ratelimit.limitAll(all)))
    expect(answers.filter(({ success }) => success)).toHaveLength(5)
    expect(await charged('together')).toEqual([5, 5])
    await end()
  })
})

test('whatever error ends the transaction after its work, nobody knows whether it was charged', async () => {
  const { db } = watch(database.db)
  const cut: Database = {
    ...db,
    transaction: async (...work) => {
      await db.transaction(...work)
      throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
    },
  }
  const ratelimit = new Ratelimit({ db: cut, limiter, prefix: 'cut', cleanupProbability: 0 })
  const all = Ratelimit.limitAll([{ ratelimit, key: 'key' }])
  await expect(all).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(await charged('cut')).toEqual([1])
})

describe('what its transaction is set to', () => {
  const { rows, script } = {
    rows: (query: string) => database.rows(query),
    script: (sql: string) => database.script(sql),
  }
  let db: Db
  beforeAll(async () => {
    await script(`create table settings (isolation text, commits text);
      create function tell() returns trigger language plpgsql as $$ begin
        insert into settings values (current_setting('transaction_isolation'), current_setting('synchronous_commit'));
        return new; end $$;
      create trigger told before insert on rate_limit_durable for each row execute function tell();
      create trigger told before insert on rate_limit_ephemeral for each row execute function tell();`)
    const [row] = await rows('select current_database() as name')
    await script(
      hasServer()
        ? `alter database "${row?.['name']}" set default_transaction_isolation = 'serializable';
           alter database "${row?.['name']}" set synchronous_commit = 'local'`
        : `set default_transaction_isolation = 'serializable'; set synchronous_commit = 'local'`,
    )
    db = hasServer() ? database.connect(1).db : database.db
  })

  let prefixes = 0
  async function settingsOf(kinds: readonly (keyof typeof configs)[], joined = false): Promise<unknown> {
    await script('truncate settings')
    const prefix = `set ${prefixes++}`
    const all = kinds.map((kind) => {
      const config: RatelimitConfig = { ...configs[kind], db, limiter, prefix: `${prefix} ${kind}` }
      return { ratelimit: new Ratelimit({ ...config, cleanupProbability: 0 }), key: 'key' }
    })
    if (joined) await db.transaction((tx) => Ratelimit.limitAll(all, { tx }))
    else expect(await Ratelimit.limitAll(all)).toMatchObject({ success: true })
    return (await rows('select distinct isolation, commits from settings')).map((row) => ({ ...row }))
  }
  const configs = {
    ephemeral: {},
    durable: { durable: true },
    flushed: { durable: true, synchronousCommit: true },
  } as const

  test('READ COMMITTED, whatever the default of the session is', async () => {
    expect(await settingsOf(['ephemeral'])).toEqual([{ isolation: 'read committed', commits: 'local' }])
  })

  test('it does not wait for the WAL, unless one of the limiters wants that', async () => {
    const isolation = 'read committed'
    expect(await settingsOf(['durable'])).toEqual([{ isolation, commits: 'off' }])
    await script(`set synchronous_commit = 'off'`)
    expect(await settingsOf(['flushed'])).toEqual([{ isolation, commits: hasServer() ? 'local' : 'on' }])
    await script(`set synchronous_commit = 'local'`)
    // The limiter that comes first does not decide.
    for (const kinds of [
      ['ephemeral', 'durable', 'flushed'],
      ['durable', 'flushed', 'ephemeral'],
    ] as const) {
      expect(await settingsOf(kinds)).toEqual([{ isolation, commits: 'local' }])
    }
    expect(await settingsOf(['ephemeral', 'durable'])).toEqual([{ isolation, commits: 'off' }])
  })

  test('in a transaction of the caller, nothing is set', async () => {
    expect(await settingsOf(['durable', 'flushed'], true)).toEqual([
      { isolation: 'serializable', commits: 'local' },
    ])
  })
})
