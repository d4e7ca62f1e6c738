import { readFile } from 'node:fs/promises'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { checkTables, type Limiter, limitAll, Ratelimit, storageSql, tableSql } from 'drizzle-ratelimit'
import {
  RateLimiterPostgres,
  RateLimiterQueue,
  RateLimiterRes,
  RateLimiterUnion,
} from 'rate-limiter-flexible'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { randomFrom } from '../../support/random.ts'
import { isGate } from '../../support/runs.ts'

// What docs/moving.md says is run: the calls of its tables, its SQL, and what behaves differently.

let page: string
let client: PGlite
let db: ReturnType<typeof drizzle>
beforeAll(async () => {
  page = await readFile('docs/moving.md', 'utf8')
  client = await PGlite.create()
  db = drizzle({ client })
  return () => client.close()
})
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['Date'] })
  vi.setSystemTime('2026-03-10T12:00:07.001Z')
  await client.exec(`drop schema public cascade; create schema public; ${tableSql().join(';')}`)
})
afterEach(() => vi.useRealTimers())

function advance(ms: number): void {
  vi.setSystemTime(Date.now() + ms)
}

function ours(limiter: Limiter, prefix = 'api'): Ratelimit {
  return new Ratelimit({ db, limiter, prefix, clock: () => new Date(), cleanupProbability: 0 })
}

function section(heading: string): string {
  return page.split(/^## /m).find((text) => text.startsWith(heading)) ?? ''
}

/** The calls in the first table of a section: the old one and the new one. */
function callsOf(heading: string): (readonly [string, string])[] {
  const table = /^\|[\s\S]*?\n\n/m.exec(section(heading))?.[0] ?? ''
  return [...table.matchAll(/^\| `(.+?)` +\| `(.+?)` +\|$/gm)].map(([, old = '', call = '']) => [old, call])
}

/** The calls that a section lists: those that are the same, and the old and the new form of another one. */
function listed(heading: string) {
  const codesIn = (name: string) => {
    const [, list = ''] = new RegExp(`^${name}: (.*?)\\n\\n`, 'ms').exec(section(heading)) ?? []
    return [...list.matchAll(/`(.+?)`/gs)].map(([, code = '']) => code)
  }
  const [old = '', call = ''] = codesIn('Other')
  return { same: codesIn('The same'), other: { old, call } }
}

function sqlOf(heading: string): string {
  return /^```sql\n(.*?)^```/ms.exec(section(heading))?.[1] ?? ''
}

/** What the code in a table makes of these names. */
function run(code: string, names: Readonly<Record<string, unknown>>): unknown {
  return new Function(...Object.keys(names), `return ${code}`)(...Object.values(names))
}

describe('0.1', () => {
  /** The codes of the table: the old ones, or the new ones. */
  function codes(column: 1 | 2): string[] {
    const rows = [...section('From 0.1').matchAll(/^\| (.+?) +\| (.+?) +\|$/gm)]
    return rows.flatMap((row) =>
      [...(row[column] ?? '').matchAll(/`([^`]+?)`/g)].map(([, code = '']) => code),
    )
  }

  const isOption = (code: string) => /^\w+: /.test(code)
  const common = () => ({ db, limiter: Ratelimit.tokenBucket(5, '10s', 20), prefix: 'api' })

  test('each option of now is taken, and each old one is refused', async () => {
    const entries = await everything()
    const made = (code: string) =>
      new Ratelimit({ ...common(), ...(run(`({ ${code} })`, { ...entries, write: () => {} }) as object) })
    const [old, now] = ([1, 2] as const).map((column) => codes(column).filter(isOption)) as [
      string[],
      string[],
    ]
    expect([old.length, now.length]).toEqual([6, 6])
    for (const code of now) made(code)
    for (const code of old)
      expect(() => made(code)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  })

  test('each call of now answers, and the old ones are gone', async () => {
    const entries = await everything()
    const { Quota, Credits, Semaphore, blocks, reserveAll, spend } = entries
    const ratelimit = new Ratelimit({ ...common(), use: [blocks()] })
    const quota = new Quota({ db, limiter: Ratelimit.fixedWindow(100, '1d'), prefix: 'quota' })
    const [key, id, requests] = ['org', 'job', [{ ratelimit: quota, key: 'org' }]]
    const own = {
      ...{ ratelimit, quota, credits: new Credits({ db, prefix: 'credits' }), key, id, requests },
      semaphore: new Semaphore({ db, prefix: 'semaphore', limit: 1, lease: '30s' }),
    }
    const calls = codes(2).filter((code) => code.includes('(') && !isOption(code))
    expect(calls).toHaveLength(14)
    for (const code of calls) {
      if (/settle.* actual: \d/.test(code)) await spend(requests, { rate: 9, id, expires: '1h' })
      if (code.includes('actual: [')) await reserveAll([{ ...requests[0], rate: 9 }], { id, expires: '1h' })
      if (code.startsWith('quota.settle')) await quota.reserve(key, { rate: 9, id, expires: '1h' })
      const names = { ...entries, ...own, db, prefix: 'made' }
      if (code.includes('tx')) await db.transaction(async (tx) => run(code, { ...names, tx }))
      else await run(code, names)
      await client.exec('delete from rate_limit_durable')
    }
    const gone = codes(1).flatMap((code) => /^(?:Ratelimit\.)?(\w+)/.exec(code)?.[1] ?? [])
    // It has `reserve` without an id.
    expect(gone.filter((name) => name in ratelimit || name in Ratelimit)).toEqual(['reserve'])
  })

  /** What the entries export that the table names. */
  // biome-ignore lint/suspicious/noExplicitAny: it runs codes of a document.
  async function everything(): Promise<any> {
    const wings = ['credits', 'quota', 'semaphore', 'lockout', 'schedule', 'citus', 'prefetch', 'denials']
    const names = [...wings, 'ledger', 'reports'].map((wing) => `drizzle-ratelimit/${wing}`)
    return Object.assign({}, ...(await Promise.all(names.map((name) => import(name)))))
  }
})

describe('@upstash/ratelimit', () => {
  const heading = 'From @upstash/ratelimit'
  /** What its documentation says that the calls answer, one after the other, to a sliding window of 10. */
  const documented: Readonly<Record<string, object>> = {
    'ratelimit.limit(id)': { success: true, limit: 10, remaining: 9 },
    'ratelimit.limit(id, { rate: 5 })': { success: true, limit: 10, remaining: 4 },
    'ratelimit.limit(id, { rate: -5 })': { success: true, limit: 10, remaining: 9 },
    'ratelimit.getRemaining(id)': { limit: 10, remaining: 9 },
    'ratelimit.blockUntilReady(id, 30_000)': { success: true, limit: 10, remaining: 9 },
    'ratelimit.setDynamicLimit({ limit: 120 })': { success: true, limit: 120, remaining: 118 },
  }

  test('each call answers as documented there', async () => {
    const ratelimit = ours(Ratelimit.slidingWindow(10, '10 s'))
    const { same, other } = listed(heading)
    const calls = same.filter((call) => !call.startsWith('Ratelimit.')).map((call) => ({ old: call, call }))
    expect(calls).toHaveLength(6)
    for (const { old, call } of [...calls, other]) {
      const answer = await run(call, { ratelimit, id: 'user', Ratelimit })
      if (old === 'ratelimit.resetUsedTokens(id)') {
        expect(await ratelimit.getRemaining('user')).toMatchObject({ remaining: 10 })
      } else expect([old, answer]).toMatchObject([old, documented[old] ?? {}])
    }
  })

  test('each algorithm takes the same arguments', async () => {
    const algorithms = listed(heading).same.filter((call) => call.startsWith('Ratelimit.'))
    const limits = algorithms.map(async (call, place) => {
      const limiter = run(call, { Ratelimit }) as Limiter
      return (await ours(limiter, `algorithm ${place}`).limit('user')).limit
    })
    expect(await Promise.all(limits)).toEqual([10, 10, 20])
  })

  test('a denial that cannot end in time is returned at once, with the time at which the call would be allowed', async () => {
    const ratelimit = ours(Ratelimit.fixedWindow(10, '1 m'))
    await ratelimit.limit('user', { rate: 10 })
    const denial = await ratelimit.blockUntilReady('user', 30_000)
    expect(denial).toMatchObject({
      success: false,
      remaining: 0,
      retryAfter: 60_000,
      reset: Date.now() + 60_000,
    })
  })
})

describe('rate-limiter-flexible', () => {
  const heading = 'From rate-limiter-flexible'

  /** Its Postgres store, on PGlite. */
  function flexible(keyPrefix: string): Promise<RateLimiterPostgres> {
    const query = async ({ text, values = [] }: { text: string; values?: unknown[] }) => {
      const { rows, affectedRows = 0 } = await client.query(text, values)
      return { rows, rowCount: rows.length || affectedRows }
    }
    const config = { storeClient: { query }, storeType: 'client', clearExpiredByTimeout: false }
    return new Promise((resolve, reject) => {
      const limiter: RateLimiterPostgres = new RateLimiterPostgres(
        { ...config, keyPrefix, points: 5, duration: 60 },
        (error) => (error ? reject(error) : resolve(limiter)),
      )
    })
  }

  function fixedWindow(prefix: string): Ratelimit {
    return ours(Ratelimit.fixedWindow(5, '1m'), prefix)
  }

  /** Allowed or denied, what remains, and the time until the window ends. */
  async function consumed(limiter: RateLimiterPostgres, key: string, points = 1) {
    const isAnswer = (answer: unknown) => answer instanceof RateLimiterRes
    const denial = await limiter.consume(key, points).catch((error) => error)
    const isDenied = await limiter.get(key).then((found) => (found?.consumedPoints ?? 0) > 5)
    expect(isAnswer(denial)).toBe(true)
    const { remainingPoints, msBeforeNext } = denial as RateLimiterRes
    return { success: !isDenied, remaining: remainingPoints, reset: Date.now() + msBeforeNext }
  }

  /** What an answer of either package says to remain. */
  function remainingIn(answer: unknown): unknown {
    if (answer instanceof RateLimiterRes) return answer.remainingPoints
    if (typeof answer === 'number') return answer
    if (typeof answer !== 'object' || answer === null) return undefined
    if ('remaining' in answer) return answer.remaining
    const [first] = 'results' in answer ? (answer.results as unknown[]) : Object.values(answer)
    return remainingIn(first)
  }

  test('each call leaves the same state and gives the same answer', async () => {
    const calls = callsOf(heading)
    expect(calls).toHaveLength(8)
    const old = { limiter: await flexible('old'), other: await flexible('other') }
    const now = { limiter: fixedWindow('old'), other: fixedWindow('other') }
    for (const [place, [theirs, call]] of calls.entries()) {
      const key = `key ${place}`
      await old.limiter.consume(key, 3)
      await now.limiter.limit(key, { rate: 3 })
      const before = await run(theirs, { ...old, key, RateLimiterUnion, RateLimiterQueue })
      const after = await run(call, { ...now, key, limitAll })
      if (typeof before !== 'boolean') expect([call, remainingIn(after)]).toEqual([call, remainingIn(before)])
      const used = (await old.limiter.get(key))?.consumedPoints ?? 0
      expect([call, (await now.limiter.getRemaining(key)).used]).toEqual([call, used])
    }
  })

  test('calls at any time have the same answers', async () => {
    const count = isGate ? 500 : 100
    const [old, now] = [await flexible('traffic'), fixedWindow('traffic')]
    const random = randomFrom(12)
    let denied = 0
    for (let calls = 0; calls < count; calls++) {
      advance(Math.floor(random() ** 3 * 40_000))
      const { success, remaining, reset, retryAfter } = await now.limit('user')
      expect({ success, remaining, reset }).toEqual(await consumed(old, 'user'))
      if (!success) denied++
      expect(retryAfter).toBe(success ? 0 : reset - Date.now())
    }
    expect(denied).toBeGreaterThan(count / 10)
    expect(denied).toBeLessThan(0.9 * count)
  })

  test('denied points count there, and do not here', async () => {
    const [old, now] = [await flexible('denied'), fixedWindow('denied')]
    expect(await consumed(old, 'user', 6)).toMatchObject({ success: false })
    expect(await consumed(old, 'user')).toMatchObject({ success: false })
    expect(await now.limit('user', { rate: 6 })).toMatchObject({ success: false })
    expect(await now.limit('user')).toMatchObject({ success: true })
  })

  test('a union charges the limiters that allow, limitAll none', async () => {
    const [old, oldOther] = [await flexible('union'), await flexible('union_other')]
    const [now, other] = [fixedWindow('union'), fixedWindow('union_other')]
    await oldOther.consume('user', 5)
    await other.limit('user', { rate: 5 })
    await expect(new RateLimiterUnion(old, oldOther).consume('user')).rejects.toBeTruthy()
    expect((await old.get('user'))?.consumedPoints).toBe(1)
    const requests = [now, other].map((ratelimit) => ({ ratelimit, key: 'user' }))
    expect(await limitAll(requests)).toMatchObject({ success: false })
    expect((await now.getRemaining('user')).used).toBe(0)
  })

  test('the SQL keeps the use and its end', async () => {
    vi.useRealTimers()
    const old = await flexible('login')
    await old.consume('user:1', 3)
    await client.exec(`insert into login values ('login:user:2', 5, 1000)`)
    await client.exec(sqlOf(heading))
    const now = fixedWindow('login')
    const { used, reset } = await now.getRemaining('user:1')
    const askedAt = Date.now()
    const msBeforeNext = (await old.get('user:1'))?.msBeforeNext ?? 0
    const toldAt = Date.now()
    expect(used).toBe(3)
    expect(reset).toBeGreaterThanOrEqual(askedAt + msBeforeNext)
    expect(reset).toBeLessThanOrEqual(toldAt + msBeforeNext)
    expect((await now.getRemaining('user:2')).used).toBe(0)
  })
})

describe('pg-ratelimit', () => {
  const heading = 'From pg-ratelimit'
  const COLUMNS = `prefix text not null, key text not null, count bigint, prev_count bigint,
    window_start timestamptz, tokens double precision, last_refill timestamptz, expires_at timestamptz not null,
    primary key (prefix, key)`

  beforeEach(async () => {
    await client.exec(`drop table rate_limit_ephemeral, rate_limit_durable;
      create unlogged table rate_limit_ephemeral (${COLUMNS});
      create index idx_rate_limit_ephemeral_cleanup on rate_limit_ephemeral (prefix, expires_at);
      create table rate_limit_durable (${COLUMNS});
      create index idx_rate_limit_durable_cleanup on rate_limit_durable (prefix, expires_at);`)
  })

  /** A row as its plain SQL writes it: seconds from now. */
  async function written(columns: Readonly<Record<string, number>>, expiresIn: number): Promise<void> {
    const names = Object.keys(columns)
    const values = Object.entries(columns).map(([name, value]) =>
      ['window_start', 'last_refill'].includes(name) ? timeIn(value) : String(value),
    )
    await client.exec(`insert into rate_limit_ephemeral (prefix, key, ${names.join(', ')}, expires_at)
      values ('api', 'user', ${values.join(', ')}, ${timeIn(expiresIn)})`)
  }

  function timeIn(seconds: number): string {
    return `'${new Date(Date.now() + seconds * 1000).toISOString()}'`
  }

  test('the calls have the same names', async () => {
    const { same, other } = listed(heading)
    expect(same).toHaveLength(4)
    // It has the clock of the database, and its sweep may run in a later test.
    const config = { db, limiter: Ratelimit.tokenBucket(5, '10s', 20), prefix: 'calls', Ratelimit }
    const ratelimit = run(other.call, config)
    for (const call of same) await run(call, { ratelimit, key: 'user' })
  })

  test('after the SQL and the storage migration the tables are as they should be', async () => {
    await client.exec(sqlOf(heading))
    await client.exec(storageSql().join(';'))
    expect(await checkTables(db)).toEqual([])
    const indexes = await client.query<{ name: string }>(
      `select indexname as name from pg_indexes where schemaname = 'public' order by 1`,
    )
    await client.exec(`drop table rate_limit_ephemeral, rate_limit_durable; ${tableSql().join(';')}`)
    const shipped = await client.query<{ name: string }>(
      `select indexname as name from pg_indexes where schemaname = 'public' order by 1`,
    )
    expect(indexes.rows).toEqual(shipped.rows)
  })

  test('a fixed window goes on, with the denied calls that were counted', async () => {
    await written({ count: 7, window_start: -20 }, 40)
    const ratelimit = ours(Ratelimit.fixedWindow(10, '1m'))
    expect(await ratelimit.limit('user', { rate: 3 })).toMatchObject({ success: true, remaining: 0 })
    expect(await ratelimit.limit('user')).toMatchObject({ success: false, retryAfter: 40_000 })
    await client.exec('update rate_limit_ephemeral set count = 25')
    expect(await ratelimit.limit('user')).toMatchObject({ success: false, retryAfter: 40_000 })
    advance(40_000)
    expect(await ratelimit.limit('user')).toMatchObject({ success: true, remaining: 9 })
  })

  test('a sliding window goes on, with its previous window', async () => {
    await written({ count: 2, prev_count: 8, window_start: -30 }, 90)
    const ratelimit = ours(Ratelimit.slidingWindow(10, '1m'))
    // Half of the previous window's eight still count.
    expect(await ratelimit.getRemaining('user')).toMatchObject({ used: 6, remaining: 4 })
    expect(await ratelimit.limit('user', { rate: 4 })).toMatchObject({ success: true, remaining: 0 })
    expect(await ratelimit.limit('user')).toMatchObject({ success: false, retryAfter: 7500 })
  })

  test('a bucket goes on, with the refills since its row was written', async () => {
    await written({ tokens: 3, last_refill: -25 }, 15)
    const ratelimit = ours(Ratelimit.tokenBucket(5, '10s', 20))
    expect(await ratelimit.getRemaining('user')).toMatchObject({ remaining: 13 })
    expect(await ratelimit.limit('user', { rate: 14 })).toMatchObject({ success: false, retryAfter: 5000 })
    advance(5000)
    expect(await ratelimit.limit('user', { rate: 14 })).toMatchObject({ success: true, remaining: 4 })
  })

  test('a row that is marked as expired counts until cleanup deletes it', async () => {
    // 10 tokens at 3 every 10 s need 40 s. The row says 33.3 s.
    await written({ tokens: 0, last_refill: -36 }, -2.7)
    const ratelimit = ours(Ratelimit.tokenBucket(3, '10s', 10))
    expect(await ratelimit.getRemaining('user')).toMatchObject({ remaining: 9 })
    advance(60_000)
    expect(await ratelimit.cleanup()).toBe(1)
  })
})

describe('SQL of your own', () => {
  /** A limiter, and what its columns hold if 6 of 10 are left. */
  const ROWS: Readonly<Record<string, readonly [Limiter, string]>> = {
    fixedWindow: [Ratelimit.fixedWindow(10, '1m'), '4, :now'],
    slidingWindow: [Ratelimit.slidingWindow(10, '1m'), "1, 6, :now - interval '30 seconds'"],
    tokenBucket: [Ratelimit.tokenBucket(5, '10s', 10), '6, :now'],
  }

  test.each(Object.entries(ROWS))(
    'the columns of %s are those that it reads',
    async (name, [limiter, values]) => {
      const [, cell = ''] =
        new RegExp(`^\\| \`${name}\` +\\| (.+?) *\\|$`, 'm').exec(section('From SQL')) ?? []
      const now = `'${new Date().toISOString()}'::timestamptz`
      await client.exec(`insert into rate_limit_ephemeral (prefix, key, ${cell.replaceAll('`', '')}, expires_at)
      values ('api', 'user', ${values.replaceAll(':now', now)}, ${now} + interval '2 minutes')`)
      expect(await ours(limiter).getRemaining('user')).toMatchObject({ remaining: 6 })
    },
  )
})
