import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { beforeAll, expect, inject, test, vi } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { createLedger, writeEntries } from '../../support/ledger.ts'
import { untilWaiting } from '../../support/locks.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { randomFrom } from '../../support/random.ts'
import { times } from '../../support/runs.ts'

// The entries that commit are the charges that commit, whoever calls at the same time.

const database = useDatabase()
beforeAll(() => createLedger(database))

const UNDO = new Error('undo')
const KEYS = 5
const UNITS = times(1200)

/** For each key, the units in the rows of the limiter and in the application's table. */
function sums(prefix: string) {
  return database.rows(
    `select key, count::float8 as used, (select sum(units) from app_ledger entry
      where entry.prefix = stored.prefix and entry.key = stored.key) as recorded
    from rate_limit_ephemeral stored where prefix = $1 order by key`,
    [prefix],
  )
}

function quotaOf(prefix: string, write = writeEntries) {
  const { db } = database.connect(6)
  const limiter = Ratelimit.fixedWindow(UNITS, '1d')
  return {
    db,
    quota: new Ratelimit({ timeout: false, db, prefix, limiter, use: [ledger<typeof database.db>(write)] }),
  }
}

test('64 callers of four processes, with refunds, lists, ids and rollbacks: the table has what the rows have', async () => {
  const random = randomFrom(11)
  const whole = (below: number) => Math.floor(random() * below)
  const processes = Array.from({ length: 4 }, () => quotaOf('busy'))
  await Promise.all(
    Array.from({ length: 64 }, async (_, caller) => {
      const { db, quota } = processes[caller % 4] as (typeof processes)[number]
      for (let i = 0; i < times(12); i++) {
        const [key, rate] = [`key ${whole(KEYS)}`, 1 + whole(30)]
        const way = whole(7)
        if (way < 2) await quota.limit(key, { rate })
        else if (way === 2) await quota.limit(key, { rate: -rate })
        else if (way === 3) await quota.limit(key, { rate, once: { id: `event ${whole(40)}`, for: '1d' } })
        else if (way === 4) {
          const others = [key, `key ${whole(KEYS)}`].map((each) => ({ ratelimit: quota, key: each, rate }))
          await limitAll(others)
        } else if (way === 5) {
          const reserved = await quota.reserve(key, { rate })
          if (reserved.success) await reserved.commit(whole(40))
        } else {
          const joined = db.transaction(async (tx) => {
            await quota.limit(key, { rate, tx })
            if (whole(2)) throw UNDO
          })
          await joined.catch((error) => expect(error).toBe(UNDO))
        }
      }
    }),
  )
  const [{ quota }] = processes as [(typeof processes)[number]]
  const { remaining } = await quota.getRemaining('key 0')
  expect(await quota.limit('key 0', { rate: remaining + 1 })).toMatchObject({ success: false })
  const found = await sums('busy')
  expect(found).toHaveLength(KEYS)
  for (const { used, recorded } of found) expect(recorded).toBe(used)
})

test('after a deadlock with the application, it is called again, and its entries are there once', async () => {
  await database.script('create table app_totals (key text primary key, units float8 not null)')
  await database.script("insert into app_totals values ('total', 0)")
  let times = 0
  const { quota } = quotaOf('locked', async (tx, entries) => {
    times++
    await writeEntries(tx, entries)
    await (tx as unknown as { execute(query: string): Promise<unknown> }).execute(
      'update app_totals set units = units + 1',
    )
  })
  await quota.limit('key')
  const other = await database.client()
  await other.query('begin')
  await other.query("set local deadlock_timeout to '20s'")
  await other.query('update app_totals set units = units + 1')
  const call = quota.limit('key')
  await untilWaiting(database)
  // The call waits for the total, and this transaction for its row.
  const row = other.query("update rate_limit_ephemeral set count = count where prefix = 'locked'")
  const ended = await Promise.allSettled([call, row.then(() => other.query('commit'))])
  if (ended[1].status === 'rejected') await other.query('rollback')
  expect(ended[0]).toMatchObject({ status: 'fulfilled', value: { success: true } })
  expect(await sums('locked')).toEqual([{ key: 'key', used: 2, recorded: 2 }])
  expect(times).toBeGreaterThanOrEqual(2)
})

test('the short wait for a new row does not bound what the application waits for', async () => {
  await database.script('create table app_slow (key text primary key)')
  const entries: Entry[] = []
  const { quota } = quotaOf('slow', async (tx, own) => {
    await (tx as unknown as { execute(query: string): Promise<unknown> }).execute(
      "insert into app_slow values ('one') on conflict do nothing",
    )
    entries.push(...own)
  })
  const other = await database.client()
  await other.query('begin')
  await other.query("insert into app_slow values ('one')")
  const calls = [quota.limit('new'), quota.limit('with an id', { once: { id: 'event', for: '1d' } })]
  await untilWaiting(database, 2)
  await other.query('commit')
  for (const answer of await Promise.all(calls)) expect(answer).toMatchObject({ success: true })
  expect(entries.map(({ key }) => key).toSorted()).toEqual(['new', 'with an id'])
})

test('what the application waits for delays no call of others, and no few calls of the limiter', async () => {
  let goOn = () => {}
  const ended = new Promise<void>((resolve) => {
    goOn = resolve
  })
  let waiting = 0
  const { db, quota } = quotaOf('waiting', async (_tx, entries) => {
    if (entries.length < 24) return
    waiting++
    await ended
  })
  const besideIt = (prefix: string) =>
    new Ratelimit({ timeout: false, db, prefix, limiter: Ratelimit.fixedWindow(10, '1d') })
  const [one, other] = [besideIt('one'), besideIt('other')]
  const keys = Array.from({ length: 30 }, (_, i) => `key ${i}`)
  const inLists = (key: string) =>
    limitAll([
      { ratelimit: quota, key },
      { ratelimit: one, key },
    ])
  for (const key of keys) await inLists(key)
  const lists = keys.map(inLists)
  const calls = keys.map((key) => quota.limit(`${key}, alone`))
  await vi.waitUntil(() => waiting === 2, PATIENTLY)
  const few = [
    limitAll([one, other].map((ratelimit) => ({ ratelimit, key: 'another' }))),
    quota.limit('another'),
    quota.getRemaining('another'),
  ]
  expect(await Promise.all(few)).toMatchObject([{ success: true }, { success: true }, { limit: UNITS }])
  goOn()
  for (const { success } of await Promise.all([...lists, ...calls])) expect(success).toBe(true)
})

// postgres.js prepares COMMIT too. If its name is gone, that rolls back, and postgres.js reports a commit.
test.runIf(inject('driver') === 'node-postgres')(
  'if a pooler refuses a kept statement, the whole transaction runs again',
  async () => {
    const { db } = database.connect(1)
    const limiter = Ratelimit.fixedWindow(10, '1d')
    const quota = new Ratelimit({
      timeout: false,
      db,
      prefix: 'refused',
      limiter,
      use: [ledger<typeof database.db>(writeEntries)],
    })
    for (let i = 0; i < 3; i++) await quota.limit('key')
    // The driver believes that the connection still has them.
    await db.execute('deallocate all')
    expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 6 })
    expect(await sums('refused')).toEqual([{ key: 'key', used: 4, recorded: 4 }])
  },
)

test.runIf(inject('driver') === 'node-postgres')(
  'the function may call limiters, which keep no statements in its transaction',
  async () => {
    const { db } = database.connect(1)
    const limiter = Ratelimit.fixedWindow(10, '1d')
    const common = { db, limiter, timeout: false, cleanupProbability: 0 } as const
    const inner = new Ratelimit({ ...common, prefix: 'called by function' })
    const write = async (tx: typeof db) => {
      await inner.limit('key', { tx })
    }
    const quota = new Ratelimit({ ...common, prefix: 'with a function', use: [ledger<typeof db>(write)] })
    for (let i = 0; i < 3; i++) await quota.limit('key')
    await db.execute('deallocate all')
    expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 6 })
    expect(await inner.getRemaining('key')).toMatchObject({ used: 4 })
  },
)
