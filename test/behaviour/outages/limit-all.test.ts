import { drizzle } from 'drizzle-orm/node-postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { type Database, limitAll, Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { type Db, hasServer, open, useDatabase } from '../../support/databases.ts'
import { holdRows, untilWaiting } from '../../support/locks.ts'
import { FaultyProxy } from '../../support/proxy.ts'
import { watch } from '../../support/watch.ts'

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
  beforeAll(async () => {
    proxy = await FaultyProxy.start(database.url)
  })
  afterAll(() => proxy.close())
  afterEach(() => {
    proxy.fault = () => 'pass'
  })

  test('its backend ends while it waits for a row: the process goes on', async () => {
    const { db, end } = open(database.url, 1)
    const all = requests(db, 'dies')
    await limitAll(all)
    const holder = await holdRows(database, 'dies')
    const waiting = limitAll(all).catch((error: unknown) => error)
    const [waiter] = await untilWaiting(database)
    await database.rows(`select pg_terminate_backend(${waiter})`)
    // It waits by a statement that charges nothing.
    expect(await waiting).toMatchObject({ code: 'UNREACHABLE' })
    await holder.query('rollback')
    expect(await charged('dies')).toEqual([1, 1])
    // postgres.js fails the next statement on a new connection because the old one has ended.
    const again = await limitAll(all).catch(() => limitAll(all))
    expect(again).toMatchObject({ success: true })
    await end()
  })

  test('its connections break: the pool does not run dry', async () => {
    const { db, end } = open(proxy.through(database.url), 2)
    const all = requests(db, 'broken')
    proxy.fault = (request) => (/for update/.test(request.toString('latin1')) ? 'cut before' : 'pass')
    // postgres.js first sends a new statement without its parameters, so that it cannot charge.
    const code = inject('driver') === 'postgres-js' ? 'UNREACHABLE' : 'OUTCOME_UNKNOWN'
    for (let i = 0; i < 4; i++) {
      await expect(limitAll(all)).rejects.toMatchObject({ code })
    }
    proxy.fault = () => 'pass'
    expect(await charged('broken')).toEqual([])
    // The first answer ends the outage; then several go at once again.
    await limitAll(all)
    await Promise.all([all, all].map((again) => limitAll(again)))
    expect(await charged('broken')).toEqual([3, 3])
    await end()
  })

  test.runIf(inject('driver') === 'node-postgres')(
    'on a single client all or none is charged, whatever else the client runs',
    async () => {
      const client = await database.client()
      const all = requests(drizzle({ client }), 'single')
      const single = { db: drizzle({ client }), limiter, prefix: 'beside', cleanupProbability: 0 }
      const beside = new Ratelimit(single)
      const [answers] = await Promise.all([
        Promise.all(Array.from({ length: 30 }, () => limitAll(all))),
        Promise.all(Array.from({ length: 30 }, (_, i) => beside.limit(`key ${i}`))),
      ])
      expect(answers.filter(({ success }) => success)).toHaveLength(5)
      expect(await charged('single')).toEqual([5, 5])
    },
  )

  test('many at once get exactly the limit, each all or nothing', async () => {
    const { db, end } = open(database.url, 4)
    const all = requests(db, 'together')
    const answers = await Promise.all(Array.from({ length: 20 }, () => limitAll(all)))
    expect(answers.filter(({ success }) => success)).toHaveLength(5)
    expect(await charged('together')).toEqual([5, 5])
    await end()
  })
})

describe('the settings of its statements', () => {
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
    if (joined) await db.transaction((tx) => limitAll(all, { tx }))
    else expect(await limitAll(all)).toMatchObject({ success: true })
    return (await rows('select distinct isolation, commits from settings')).map((row) => ({ ...row }))
  }
  const configs = {
    ephemeral: {},
    durable: { durable: true },
    flushed: { durable: true, synchronousCommit: true },
  } as const

  test('as the session is', async () => {
    expect(await settingsOf(['ephemeral'])).toEqual([{ isolation: 'serializable', commits: 'local' }])
  })

  test('it waits for the WAL only if one of the limiters asks for that', async () => {
    const isolation = 'serializable'
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

test("if others remove its rows again and again, onError 'allow' does not let it pass", async () => {
  const prefix = 'removed again'
  // A bucket that does not start full is not inserted by the list's own statement.
  const filling = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 5 })
  const { db } = watch(database.db, (text) => {
    if (!text.includes('ratelimit_found')) return undefined
    return database.rows(`delete from rate_limit_ephemeral where prefix = '${prefix}'`)
  })
  const common = { db, limiter: filling, prefix, cleanupProbability: 0 } as const
  const call = (ratelimit: Ratelimit) => limitAll(['a', 'b'].map((key) => ({ ratelimit, key })))
  await expect(call(new Ratelimit(common))).rejects.toMatchObject({ code: 'CONTENTION', contended: true })
  expect(await call(new Ratelimit({ ...common, onError: 'allow' }))).toMatchObject({ success: false })
})
