import { drizzle } from 'drizzle-orm/node-postgres'
import { alias, pgSchema } from 'drizzle-orm/pg-core'
import { countDenials } from 'drizzle-ratelimit/denials'
import { block, lockout, unblock } from 'drizzle-ratelimit/lockout'
import { Members } from 'drizzle-ratelimit/members'
import { denied, remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { balance } from '../../../src/credits/balance.ts'
import { Credits } from '../../../src/credits/index.ts'
import type { DashboardOptions } from '../../../src/dashboard/index.ts'
import { checkTables, limitAll, Ratelimit, rateLimitDurable, rateLimitTables } from '../../../src/index.ts'
import type { Limiter } from '../../../src/kernel/limits/algorithm.ts'
import { closePeriods, Quota, reserveAll, spend } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { browse } from '../../dashboard/routes/browse.ts'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { tell } from '../../support/happened.ts'
import { allExamples, type Example } from '../../support/limits.ts'

// A role that may create functions and operators in `public`, and wants to run code as the application's role.

/** The texts of all statements that the limiter has sent. */
const sent = new Set<string>()

let database: TestDatabase
let appUrl: string
let pool: pg.Pool
const db = () => drizzle({ client: pool })

beforeAll(async () => {
  database = await emptyDatabase()
  await migrate(database)
  await database.script(`
    create role app login password 'app';
    create role attacker;
    grant create on schema public to attacker;
    grant all on rate_limit_ephemeral, rate_limit_durable to app`)
  const url = new URL(database.url)
  url.username = url.password = 'app'
  await database.script(`grant create on database ${url.pathname.slice(1)} to app`)
  appUrl = url.href
  pool = openPool()
})
afterAll(async () => {
  await pool.end()
  await database.close()
})

/** Connections of the application, which note what they send. */
function openPool(): pg.Pool {
  const opened = new pg.Pool({ connectionString: appUrl, max: 10 })
  opened.on('error', () => {})
  opened.on('connect', (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown
    client.query = ((config: string | { readonly text: string }, ...rest: unknown[]) => {
      sent.add(typeof config === 'string' ? config : config.text)
      return query(config, ...rest)
    }) as typeof client.query
  })
  return opened
}

/** Limits of every algorithm, of each form of their arithmetic. */
const limiters: readonly (readonly [name: string, limiter: Limiter])[] = [
  ...allExamples.map(({ name, of }) => [name, of(20, '1h').limiter] as const),
  ['large sliding window', Ratelimit.slidingWindow(2 ** 50, '1d')],
  ['balance', balance()],
]

const isBalance = (name: string) => name === 'balance'

/** Calls that share statements although their limits have different numbers. */
async function callPlansAtOnce(prefix: string, of: Example['of']): Promise<void> {
  const quota = new Quota({ db: db(), limiter: of(20, '1h').limiter, prefix, cleanupProbability: 0 })
  const customers = ([1, 2, 3] as const).map((place) => {
    return { key: `customer ${place}`, limiter: of(20 * place, `${place}h`).limiter }
  })
  const all = (call: (customer: (typeof customers)[number]) => Promise<unknown>) =>
    Promise.all(customers.map(call))
  for (const rate of [1, 2]) await all(({ key, limiter }) => quota.limit(key, { rate, limiter }))
  await all(({ key, limiter }) => quota.getRemaining(key, { limiter }))
  await all(async ({ key, limiter }) => {
    const reserved = await quota.reserve(key, { rate: 2, id: 'job', expires: '1h', limiter })
    if (reserved.success) await reserved.commit(1)
  })
}

/** Each public call that sends a statement, in each way in which it is sent. */
async function callEverything(round: string): Promise<void> {
  for (const [name, limiter] of limiters) {
    const prefix = `${round} ${name}`
    for (const own of [
      { durable: true, synchronousCommit: true },
      { durable: true, preparedStatements: true, clock: () => new Date() },
      { durable: false, coalesce: false },
    ]) {
      const { synchronousCommit, durable, ...rest } = own
      const storage = durable
        ? ({ durable, ...(synchronousCommit ? { synchronousCommit } : {}) } as const)
        : {}
      const ratelimit = new Quota({
        ...{ db: db(), limiter, prefix, cleanupProbability: 0, durable: false },
        ...rest,
        ...storage,
      })
      if (isBalance(name)) {
        const credits = new Credits({ db: db(), prefix, durable: durable === true })
        for (const key of ['one', 'two', 'three']) await credits.grant(key, 100)
      }
      await callMethods(ratelimit, isBalance(name))
      await openPages({ limit: ratelimit, planned: { ratelimit, limiterOf: () => limiter } }, isBalance(name))
    }
    await readRows(prefix, limiter, isBalance(name))
  }
  for (const { name, of } of allExamples) await callPlansAtOnce(`${round} plans of ${name}`, of)
  const slots = new Semaphore({
    ...{ db: db(), limit: 1, lease: '1m', prefix: `${round} slots` },
    ...{ synchronousCommit: true, cleanupProbability: 0 },
  })
  const logins = new Ratelimit({
    ...{ db: db(), limiter: lockout(2, '1m', { block: '1m' }), prefix: `${round} blocked` },
  })
  for (const key of ['one', 'two']) {
    await logins.limit(key)
    await block(logins, key, '1m')
    await unblock(logins, key)
  }
  const limited = Ratelimit.tokenBucket(5, '1s', 5)
  const line = new Quota({ db: db(), limiter: limited, prefix: `${round} line`, durable: true })
  for (const rate of [5, 1]) {
    const turn = await schedule(line, 'one', { rate, within: '1m' })
    if (turn.success) await turn.cancel()
  }
  const once = { id: 'once', for: '1d' } as const
  await schedule(line, 'six', { within: '1m', once })
  const turn = await schedule(line, 'six', { within: '1m', once })
  if (turn.success) await turn.cancel()
  const devices = new Members({ db: db(), prefix: `${round} members`, limit: 1, window: '1m' })
  for (const member of ['a', 'b', 'a']) await devices.add('one', member)
  await devices.has('one', 'a')
  await devices.list('one')
  await devices.remove('one', 'a')
  const starts = ['one', 'two', 'three'].map((key) => schedule(line, key, { within: '1m' }))
  await Promise.all((await Promise.all(starts)).map((turn) => turn.success && turn.cancel()))
  const together = await Promise.all(['three', 'four', 'five'].map((key) => slots.acquire(key)))
  await Promise.all(together.map((lease) => lease.success && lease.release()))
  await callCredits(`${round} credits`)
  for (const free of ['extend', 'release'] as const) {
    const lease = await slots.acquire('one')
    await slots.acquire('one', { timeout: '1s' })
    await db().transaction((tx) => slots.acquire('two', { tx }))
    expect(await slots.holders('one')).toHaveLength(1)
    if (lease.success) expect(await lease[free]()).toBe(true)
    if (lease.success) await lease.release()
  }
  await openPages({ logins, slots })
  await listDenied(`${round} denials`)
  expect(await checkTables(db())).toEqual([])
  const tables = rateLimitTables({ schema: pgSchema(`own_${round}`) })
  const limiter = Ratelimit.fixedWindow(1, '1m')
  const migrating = new Ratelimit({ db: db(), limiter, prefix: 'own', tables, autoMigrate: true })
  expect(await migrating.limit('key')).toMatchObject({ success: true })
}

async function callCredits(prefix: string): Promise<void> {
  const own = db()
  const storage = { durable: true, cleanupProbability: 0 } as const
  const credits = new Credits({ ...{ db: own, dated: true, prefix }, ...storage })
  const keys = ['one', 'two', 'three']
  for (const key of keys) {
    await credits.grant(key, 10, { id: 'ends', expires: '1h', priority: 1 })
    await credits.grant(key, 10, { id: 'stays' })
  }
  for (let times = 0; times < 3; times++) {
    expect((await Promise.all(keys.map((key) => credits.limit(key, { rate: 4 })))).length).toBe(3)
  }
  await credits.limit('one', { rate: -1 })
  await credits.limit('one', { rate: 1e6 })
  await credits.limit('two', { rate: 30, force: true })
  await own.transaction((tx) => credits.limit('one', { tx }))
  const month = new Ratelimit({
    ...{ db: own, limiter: Ratelimit.fixedWindow(9, '1h'), prefix: `${prefix} month`, ...storage },
  })
  const spent = await spend(
    [
      { ratelimit: month, key: 'one' },
      { ratelimit: credits, key: 'one' },
    ],
    { rate: 11 },
  )
  if (spent.success) await spent.release()
  await openPages({ credits })
  expect(await usage(credits)).toHaveLength(3)
  await credits.grants('one')
  await credits.voidGrant('one', 'stays')
}

async function listDenied(prefix: string): Promise<void> {
  const handed: Promise<unknown>[] = []
  const counting = new Ratelimit({
    ...{ db: db(), limiter: Ratelimit.fixedWindow(0, '1m'), prefix, use: [countDenials({ every: 1 })] },
    waitUntil: (work) => void handed.push(work),
  })
  await counting.limit('one')
  for (const each of handed) await each
  expect(await denied({ db: db(), prefix, durable: false })).toEqual([{ key: 'one', denials: 1 }])
  await openPages({ counting })
}

/** Opens the pages of limits for operators. */
async function openPages(limiters: DashboardOptions['limiters'], isPrepaid = false): Promise<void> {
  const { planned: _, ...credits } = limiters
  const { get, open, post } = browse(isPrepaid ? credits : limiters)
  expect((await get()).text).not.toContain('DATABASE')
  for (const name of Object.keys(isPrepaid ? credits : limiters)) {
    const search = await post(`?limit=${name}`, { key: 'o', do: 'search' })
    const pages = [await get(`?limit=${name}`), await get(search.location), await open(name, 'one')]
    expect(pages.map(({ status }) => status)).toEqual([200, 200, 200])
  }
}

async function callMethods(ratelimit: Quota, balance: boolean): Promise<void> {
  const keys = ['one', 'two', 'three', 'four']
  for (let times = 0; times < 2; times++) await Promise.all(keys.map((key) => ratelimit.limit(key)))
  for (let times = 0; times < 2; times++) {
    await Promise.all(keys.map((key) => ratelimit.limit(key, { rate: 2, atLeast: 1 })))
  }
  await ratelimit.limit('one', { rate: -1 })
  await ratelimit.limit('new and less', { rate: 2, atLeast: 1 })
  await ratelimit.limit('one', { rate: 1, force: true })
  await ratelimit.limit('new and forced', { rate: 1, force: true })
  for (const key of ['one', 'new and reserved']) {
    const reserved = await ratelimit.reserve(key, { rate: 1 })
    if (reserved.success) await reserved.commit(2)
    const named = await ratelimit.reserve(key, { rate: 1, id: 'job', expires: '1h' })
    if (named.success) await ratelimit.settle({ key, id: 'job' }, 2)
    const less = await ratelimit.reserve(key, { rate: 2, atLeast: 1 })
    if (less.success) await less.commit(1)
  }
  await db().transaction((tx) => ratelimit.limit('one', { tx }))
  const requests = ['one', 'two', 'new of several'].map((key) => ({ ratelimit, key }))
  await limitAll(requests)
  await limitAll([...requests, { ratelimit, key: 'two', rate: 1e9 }])
  await (await spend(requests, { rate: 2 })).release()
  const all = await reserveAll(requests)
  if (all.success) await all.release()
  await ratelimit.getRemaining('one')
  await ratelimit.getRemainingAll(keys)
  await ratelimit.blockUntilReady('one', 0)
  if (!balance) await ratelimit.resetUsedTokens('four')
  await ratelimit.cleanup()
}

async function readRows(prefix: string, limiter: Limiter, balance: boolean): Promise<void> {
  await usage({ db: db(), prefix, limiterOf: () => limiter, durable: true })
  await usage({ db: db(), prefix, limiter, durable: true })
  const rows = alias(rateLimitDurable, 'stored')
  const numbers = {
    used: usedOf(rows, limiter),
    remaining: remainingOf(rows, limiter),
    reset: resetOf(rows, limiter),
  }
  const [row] = await db().select(numbers).from(rows).limit(1)
  expect(row).toEqual({ used: expect.any(Number), remaining: expect.any(Number), reset: expect.any(Number) })
  const windows = balance ? Ratelimit.fixedWindow(20, '1h') : limiter
  const periods = { db: db(), prefix, limiterOf: () => windows, durable: true }
  await db().transaction((tx) => closePeriods(periods, { tx }))
}

/** What stands in a statement outside of its texts, names and comments. */
const bare = (statement: string) => statement.replaceAll(/'[^']*'|"[^"]*"|\/\*.*?\*\/|\$\d+/gs, ' ')

/** All parts of the statements that the pattern finds. */
function found(pattern: RegExp): string[] {
  const parts = [...sent].flatMap((text) => [...bare(text).matchAll(pattern)].map(([, part]) => String(part)))
  return [...new Set(parts)]
}

const names = (list: readonly string[]) => `array[${list.map((each) => `'${each}'`).join()}]::text[]`

/** Types that the catalogs are made of, and those of constants without a cast. */
const OTHER_TYPES = [
  'integer',
  'numeric',
  'smallint',
  'integer[]',
  'oid',
  'tid',
  'name',
  'varchar',
  '"char"',
  'boolean',
  'bytea',
]

/** What the statements use, by its names: functions with numbers of arguments that pg_catalog knows. */
interface Used {
  readonly types: readonly string[]
  readonly operators: readonly string[]
  readonly functions: readonly string[]
}

async function usedInStatements(): Promise<Used> {
  const functions = found(/\b([a-z_]+)\s*\(/g)
  const operators = found(/([-+*/<>=~!@#%^&|?]+)(?!:)/g)
  const types = found(/::([a-z_0-9]+(?:\[\])?)/g)
  const [used] = await database.rows(`
    select
      array(select distinct to_regtype(t)::text from unnest(${names([...types, ...OTHER_TYPES])}) t
        where to_regtype(t) is not null) as types,
      array(select distinct oprname::text from pg_operator where oprname = any(${names(operators)})) as operators,
      array(select distinct proname || ' ' || least(case when provariadic <> 0 then 3 else pronargs end, 3)
        from pg_proc where pronamespace = 'pg_catalog'::regnamespace and pronargs > 0
          and proname = any(${names(functions)})) as functions`)
  return used as unknown as Used
}

/**
 * The SQL that makes functions and operators of these names, for all combinations of the types. Three arguments
 * have fewer types, because there are too many combinations.
 */
function trapsFor({ types, operators, functions }: Used): string[] {
  const few = types.filter((type) => /^(text|double precision|integer|bigint|numeric|boolean)$/.test(type))
  const lists: Readonly<Record<string, readonly string[][]>> = {
    1: types.map((one) => [one]),
    2: types.flatMap((one) => types.map((other) => [one, other])),
    3: few.flatMap((one) => few.flatMap((two) => few.map((three) => [one, two, three]))),
  }
  const trap = (name: string, args: readonly string[]) =>
    `create function public."${name}"(${args.join()}) returns float8 language plpgsql as 'begin raise ''trap''; end'`
  const made = ['trap 1', 'trap 2', ...functions].flatMap((each) => {
    const [name = '', count = ''] = each.split(' ')
    return lists[count]?.map((args) => trap(name, args)) ?? []
  })
  const onOne = lists[1]?.map(
    ([one]) => `create operator public.- (rightarg = ${one}, function = public.trap)`,
  )
  const onTwo = lists[2]?.flatMap(([one, two]) =>
    operators.map(
      (sign) =>
        `create operator public.${sign} (leftarg = ${one}, rightarg = ${two}, function = public.trap)`,
    ),
  )
  return [...made, ...(onOne ?? []), ...(onTwo ?? [])]
}

/** Sets the traps. The application may execute none, and Postgres asks before it begins. */
async function setTraps(): Promise<void> {
  const traps = trapsFor(await usedInStatements())
  const client = await database.client()
  await client.query(`set role attacker; ${traps.join(';')}`)
  await client.query('revoke execute on all functions in schema public from public')
  tell('traps', 'in place', traps.length)
}

test('no statement of the limiter runs a function or operator in `public`', async () => {
  await callEverything('before')
  await setTraps()

  // They are better matches than those of pg_catalog.
  const trapped = [
    '1::float8 * 1000',
    "unnest(array['one'])",
    'width_bucket(1::bigint, array[2])',
    "substr('one'::text, 1::bigint, 2::bigint)",
    'to_timestamp(1)',
  ]
  for (const each of trapped) {
    await expect(pool.query(`select ${each}`)).rejects.toMatchObject({ code: '42501' })
  }
  // Connections that were there before may keep plans without them.
  await pool.end()
  pool = openPool()
  await callEverything('after')
  tell('traps', 'statements next to them', sent.size)
})
