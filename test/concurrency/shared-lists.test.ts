import { block, blocks } from 'drizzle-ratelimit/lockout'
import { expect, test, vi } from 'vitest'
import { calendarWindow } from '../../src/calendar/index.ts'
import { type Database, type LimitAllResult, limitAll, Ratelimit } from '../../src/index.ts'
import { Quota, reserveAll, spend } from '../../src/quota/index.ts'
import { useDatabase } from '../support/databases.ts'
import { PATIENTLY } from '../support/patience.ts'
import { range } from '../support/range.ts'
import { watch } from '../support/watch.ts'

// Lists that share a statement are decided as if they came one after the other.

const database = useDatabase()

const HOUR = 3_600_000
/** Amid a period of each of the algorithms. */
const NOW = Date.UTC(2026, 5, 15, 12) + 1

const LIMITERS = {
  'fixed window': (limit: number) => Ratelimit.fixedWindow(limit, '1d'),
  'sliding window': (limit: number) => Ratelimit.slidingWindow(limit, '1d'),
  'token bucket': (limit: number) => Ratelimit.tokenBucket(1, '1d', limit),
  gcra: (limit: number) => Ratelimit.gcra(limit, '1d'),
  'calendar window': (limit: number) => calendarWindow(limit, 'month'),
}

interface Options {
  readonly db?: Database
  readonly durable?: boolean
  readonly limiter: ReturnType<(typeof LIMITERS)[keyof typeof LIMITERS]>
  readonly dryRun?: boolean
  readonly timeout?: number
}

function limit(prefix: string, options: Options): Ratelimit {
  return new Ratelimit({
    timeout: false,
    db: database.db,
    prefix,
    cleanupProbability: 0,
    clock: () => new Date(NOW),
    ...options,
  })
}

/** Makes the rows, so that nothing is undecided. */
async function known(ratelimit: Ratelimit, keys: readonly string[]): Promise<void> {
  for (const key of keys) {
    await ratelimit.limit(key)
    await ratelimit.limit(key, { rate: -1 })
  }
}

test.each(Object.keys(LIMITERS) as (keyof typeof LIMITERS)[])(
  '%s: a limit for everybody, together with one for each user, admits exactly its limit',
  async (algorithm) => {
    const everybody = limit(`all ${algorithm}`, { limiter: LIMITERS[algorithm](40) })
    const users = limit(`user ${algorithm}`, { limiter: Ratelimit.fixedWindow(3, '1d'), durable: true })
    const keys = range(20).map((i) => `user:${i}`)
    await known(everybody, ['all'])
    await known(users, keys)
    const asked = range(150).map((i) => keys[(i * 7 + (i % 3)) % keys.length] as string)
    const answers = await Promise.all(
      asked.map((key) =>
        limitAll([
          { ratelimit: everybody, key: 'all' },
          { ratelimit: users, key },
        ]),
      ),
    )
    const admitted = answers.filter(({ success }) => success)
    expect(admitted).toHaveLength(40)
    // Each answer has what the call left, as if it had been alone.
    const left = admitted.map(({ results: [first] }) => first?.remaining).toSorted((a = 0, b = 0) => b - a)
    expect(left).toEqual(range(40).map((i) => 39 - i))
    expect(await everybody.getRemaining('all')).toMatchObject({ remaining: 0 })
    for (const key of keys) {
      const own = answers.filter((_, i) => asked[i] === key)
      const granted = own.filter(({ success }) => success).length
      expect(granted).toBeLessThanOrEqual(3)
      expect(await users.getRemaining(key)).toMatchObject({ used: granted })
    }
    for (const [i, { success, results, denied, retryAfter }] of answers.entries()) {
      if (success) continue
      // What denies has nothing left, and says until when.
      expect(denied.length).toBeGreaterThan(0)
      for (const { key } of denied) {
        const place = key === 'all' ? 0 : 1
        expect(results[place]).toMatchObject({ success: false, remaining: 0 })
        expect([asked[i], 'all']).toContain(key)
      }
      expect(retryAfter).toBeGreaterThan(0)
    }
  },
)

test('lists whose rows are there and free share statements', async () => {
  const { db, statements } = watch(database.db)
  const [first, second] = ['shared 1', 'shared 2'].map((prefix) =>
    limit(prefix, { db, limiter: Ratelimit.fixedWindow(100, '1d') }),
  ) as [Ratelimit, Ratelimit]
  const keys = range(60).map(String)
  await known(first, keys)
  await known(second, keys)
  statements.length = 0
  const both = (key: string) => [
    { ratelimit: first, key },
    { ratelimit: second, key },
  ]
  await Promise.all(keys.map((key) => limitAll(both(key))))
  // The server decides one half while this process sends the other.
  expect(statements.length).toBeLessThanOrEqual(2)
  const spent = await Promise.all(keys.map((key) => spend(both(key), { rate: 100 })))
  expect(spent.map(({ granted }) => granted)).toEqual(keys.map(() => [99, 1]))
  const reserved = await Promise.all(
    keys.map((key, i) => reserveAll(both(key).map((each) => ({ ...each, rate: i % 2 })))),
  )
  expect(reserved.map(({ success }) => success)).toEqual(keys.map((_, i) => i % 2 === 0))
  expect(statements.length).toBeLessThan(8)
})

test.each([6, 12])('lists of %i rows share statements, and a denial charges none of them', async (rows) => {
  const { db, statements } = watch(database.db)
  const limits = range(rows).map((i) => {
    const limiter = [Ratelimit.tokenBucket(1, '1d', 9), Ratelimit.fixedWindow(9, '1d')][i % 2]
    return limit(`long ${rows} ${i}`, { db, durable: i % 3 === 0, limiter: limiter as Options['limiter'] })
  })
  const keys = range(20).map(String)
  for (const each of limits) await known(each, keys)
  // The second list asks more of its last row than that has left.
  const rates = (i: number) => range(rows).map((place) => (place === rows - 1 && i % 2 === 1 ? 9 : 2))
  await (limits.at(-1) as Ratelimit).limit('1', { rate: 1 })
  statements.length = 0
  const answers = await Promise.all(
    keys.map((key, i) =>
      limitAll(limits.map((ratelimit, place) => ({ ratelimit, key, rate: rates(i)[place] ?? 1 }))),
    ),
  )
  expect(statements).toHaveLength(1)
  expect(answers.map(({ success }) => success)).toEqual(keys.map((_, i) => i !== 1))
  for (const [i, key] of keys.entries()) {
    const left = await Promise.all(limits.map((each) => each.getRemaining(key)))
    const taken = i === 1 ? range(rows).map((place) => (place === rows - 1 ? 1 : 0)) : rates(i)
    expect(left.map(({ used }) => used)).toEqual(taken)
  }
})

test('estimates that are settled at the same time share statements', async () => {
  const { db, statements } = watch(database.db)
  const [tokens, cents] = ['tokens', 'cents'].map((prefix) =>
    limit(prefix, { db, limiter: calendarWindow(1_000, 'month'), durable: true }),
  ) as [Ratelimit, Ratelimit]
  const keys = range(30).map(String)
  await known(tokens, keys)
  await known(cents, keys)
  const estimates = await Promise.all(
    keys.map((key) =>
      reserveAll([
        { ratelimit: tokens, key, rate: 400 },
        { ratelimit: cents, key, rate: 12 },
      ]),
    ),
  )
  statements.length = 0
  await Promise.all(estimates.map((each, i) => (each.success ? each.commit([i, 1]) : undefined)))
  expect(statements).toHaveLength(1)
  for (const [i, key] of keys.entries()) {
    expect(await tokens.getRemaining(key)).toMatchObject({ used: i })
    expect(await cents.getRemaining(key)).toMatchObject({ used: 1 })
  }
})

test('of equal lists as many are granted as fit, and each denial has the time to wait', async () => {
  const limiters = [Ratelimit.fixedWindow(10, '1d'), Ratelimit.tokenBucket(5, '1d', 7)]
  const limits = limiters.map((limiter, i) => limit(`equal ${i}`, { limiter }))
  for (const ratelimit of limits) await known(ratelimit, ['k'])
  const requests = limits.map((ratelimit) => ({ ratelimit, key: 'k', rate: 2 }))
  const answers: LimitAllResult<unknown>[] = await Promise.all(range(30).map(() => limitAll(requests)))
  expect(answers.filter(({ success }) => success)).toHaveLength(3)
  expect(answers.filter(({ success }) => !success).map(({ results }) => results)).toEqual(
    range(27).map(() => [
      expect.objectContaining({ success: true, remaining: 4 }),
      expect.objectContaining({ success: false, remaining: 1, retryAfter: 24 * HOUR }),
    ]),
  )
})

test('a crossed threshold and an ended period are reported once', async () => {
  let now = Date.UTC(2026, 5, 30, 12)
  const options = { db: database.db, cleanupProbability: 0, clock: () => new Date(now), durable: true }
  const month = new Quota({
    timeout: false,
    ...options,
    limiter: calendarWindow(100, 'month'),
    prefix: 'told',
    thresholds: [0.5],
  })
  const users = new Ratelimit({
    timeout: false,
    ...options,
    limiter: Ratelimit.fixedWindow(9, '365d'),
    prefix: 'told by user',
  })
  const keys = range(50).map(String)
  await month.limit('all', { rate: 7 })
  for (const key of keys) await users.limit(key)
  now = Date.UTC(2026, 6, 2)
  const answers = await Promise.all(
    keys.map((key) =>
      limitAll([
        { ratelimit: month, key: 'all' },
        { ratelimit: users, key },
      ]),
    ),
  )
  const told = answers.map(({ results: [first] }) => first)
  expect(told.flatMap((each) => (each?.success && each.ended ? [each.ended.used] : []))).toEqual([7])
  expect(told.flatMap((each) => (each?.success && each.crossed ? [each.crossed] : []))).toEqual([[0.5]])
})

test('a row that others hold delays its own lists only', async () => {
  const { db } = database.connect(1)
  const [everybody, users] = [
    limit('held all', { limiter: Ratelimit.fixedWindow(100, '1d') }),
    limit('held users', { limiter: Ratelimit.fixedWindow(100, '1d') }),
  ]
  const keys = range(30).map(String)
  await known(everybody, ['all'])
  await known(users, keys)
  const call = (key: string) =>
    limitAll([
      { ratelimit: everybody, key: 'all' },
      { ratelimit: users, key },
    ])
  let held: Promise<LimitAllResult<unknown>> | undefined
  let hasEnded = false
  await db.transaction(async (tx) => {
    await users.limit('0', { tx })
    held = call('0').finally(() => {
      hasEnded = true
    })
    await Promise.all(keys.slice(1, 15).map((key) => limitOf(users, key)))
    expect(hasEnded).toBe(false)
  })
  expect(await held).toMatchObject({ success: true })
  await Promise.all(keys.map(call))
  expect(await everybody.getRemaining('all')).toMatchObject({ used: 31 })

  function limitOf(ratelimit: Ratelimit, key: string) {
    return limitAll([
      { ratelimit, key },
      { ratelimit, key: `${key} again` },
    ])
  }
})

test('a list that waits for a row keeps nobody waiting for its other rows', async () => {
  const [here, elsewhere] = [database.connect(2), database.connect(2)]
  const limitsOn = ({ db }: { readonly db: Database }, timeout?: number) => {
    const options = { db, limiter: Ratelimit.fixedWindow(100, '1d'), ...(timeout ? { timeout } : {}) }
    return { everybody: limit('a common all', options), users: limit('b common users', options) }
  }
  const call = ({ everybody, users }: ReturnType<typeof limitsOn>, key: string) =>
    limitAll([
      { ratelimit: everybody, key: 'all' },
      { ratelimit: users, key },
    ])
  const [waiting, beside, other] = [limitsOn(here), limitsOn(here, 5_000), limitsOn(elsewhere, 5_000)]
  await known(waiting.everybody, ['all'])
  await known(waiting.users, ['held', 'free'])
  let held: Promise<readonly LimitAllResult<unknown>[]> | undefined
  await database.db.transaction(async (tx) => {
    await waiting.users.limit('held', { tx })
    held = Promise.all([call(waiting, 'held'), call(waiting, 'held')])
    await untilWaitingLong()
    expect(await call(beside, 'free')).toMatchObject({ success: true })
    expect(await call(other, 'free')).toMatchObject({ success: true })
    expect(await other.everybody.limit('all')).toMatchObject({ remaining: 97 })
  })
  const results = [96, 95].map((remaining, place) => [{ remaining }, { remaining: 98 - place }])
  expect(await held).toMatchObject(results.map((each) => ({ success: true, results: each })))
})

/** Longer than a statement for new rows waits. */
async function untilWaitingLong(): Promise<void> {
  const waiting = `select 1 from pg_stat_activity where datname = current_database()
    and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '50 ms'`
  await vi.waitUntil(async () => (await database.rows(waiting)).length > 0, PATIENTLY)
}

/** Two limits of each key, whose statements the test can hinder. */
async function hindered(prefix: string, options: { readonly timeout?: number } = {}) {
  const keys = range(20).map(String)
  let hinder: ((run: () => PromiseLike<unknown>) => PromiseLike<unknown>) | undefined
  const { db } = watch(database.db)
  const execute = db.execute.bind(db)
  db.execute = (query) => (hinder ? hinder(() => execute(query)) : execute(query))
  const limits = ['first', 'second'].map((each) =>
    limit(`${prefix} ${each}`, { db, limiter: Ratelimit.fixedWindow(100, '1d'), ...options }),
  )
  for (const each of limits) await known(each, keys)
  const call = (key: string) => limitAll(limits.map((ratelimit) => ({ ratelimit, key })))
  return {
    keys,
    limits,
    call,
    hinderBy: (by: typeof hinder) => {
      hinder = by
    },
  }
}

test.each(['57P01', '40003', '08006'])(
  'lists whose statement broke off by %s are not sent again, because it may have charged them',
  async (code) => {
    const { keys, limits, call, hinderBy } = await hindered(`broken ${code}`)
    hinderBy(async (run) => {
      await run()
      throw Object.assign(new Error('broken off'), { code })
    })
    const errors = await Promise.all(keys.map((key) => call(key).catch((error: unknown) => error)))
    for (const error of errors) expect(error).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    const [first] = limits as [Ratelimit]
    hinderBy(undefined)
    for (const key of keys) expect(await first.getRemaining(key)).toMatchObject({ used: 1 })
  },
)

test('lists whose statement failed for a reason of its own are not sent one by one', async () => {
  const { keys, call, hinderBy } = await hindered('refused')
  let sent = 0
  hinderBy(() => {
    sent++
    return Promise.reject(Object.assign(new Error('too many connections'), { code: '53300' }))
  })
  const errors = await Promise.all(keys.map((key) => call(key).catch((error: unknown) => error)))
  for (const error of errors) expect(error).toMatchObject({ code: 'UNREACHABLE' })
  expect(sent).toBe(1)
})

test('calls of keys that can be blocked share a statement, although most have no row for a block', async () => {
  const { db, statements } = watch(database.db)
  const limiter = Ratelimit.fixedWindow(5, '1d')
  const ratelimit = new Ratelimit({
    timeout: false,
    db,
    limiter,
    prefix: 'blocks',
    use: [blocks()],
    cleanupProbability: 0,
  })
  const keys = ['ada', 'bob', 'eve', 'joe']
  for (const key of keys) await ratelimit.limit(key)
  await block(ratelimit, 'eve', '1h')
  const before = statements.length
  const answers = await Promise.all(keys.map((key) => ratelimit.limit(key)))
  expect(answers.map(({ success }) => success)).toEqual([true, true, false, true])
  // The blocks, the charges, and what the blocked key has used.
  expect(statements.length - before).toBeLessThanOrEqual(3)
  const usages = await ratelimit.getRemainingAll(keys)
  expect(usages.map(({ used, remaining }) => [used, remaining])).toEqual([
    [2, 3],
    [2, 3],
    [1, 0],
    [2, 3],
  ])
})

test('calls of one key that can be blocked share statements, and exactly the limit passes', async () => {
  const { db, statements } = watch(database.db)
  const ratelimit = new Ratelimit({
    ...{ db, timeout: false, limiter: Ratelimit.fixedWindow(20, '1d'), prefix: 'hot', use: [blocks()] },
    cleanupProbability: 0,
  })
  await ratelimit.limit('ada')
  const together = async () => {
    const before = statements.length
    const answers = await Promise.all(range(50).map(() => ratelimit.limit('ada')))
    return { sent: statements.length - before, answers }
  }
  const first = await together()
  expect(first.answers.filter(({ success }) => success)).toHaveLength(19)
  expect(first.sent).toBeLessThanOrEqual(3)
  await block(ratelimit, 'ada', '2d')
  const blocked = await together()
  expect(new Set(blocked.answers.map(({ blockedUntil }) => blockedUntil)).size).toBe(1)
  expect(blocked.answers.every(({ success, retryAfter }) => !success && retryAfter > 86_400_000)).toBe(true)
  expect(blocked.sent).toBeLessThanOrEqual(3)
})

test.each([-2 * HOUR, 2 * HOUR])(
  'a block counts by the clock of the database, also of a limit without a row: %s',
  async (aheadMs) => {
    const common = { timeout: false, db: database.db, cleanupProbability: 0 } as const
    const ratelimit = new Ratelimit({
      ...common,
      limiter: Ratelimit.unlimited(),
      prefix: `off by ${aheadMs}`,
      use: [blocks()],
    })
    const request = { ratelimit, key: 'ada' }
    await block(ratelimit, 'ada', '1h')
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + aheadMs })
    try {
      const answers = [
        await ratelimit.limit('ada'),
        ...(await limitAll([request])).results,
        ...(await spend([request], { rate: 2 })).results,
      ]
      for (const { success, reset, retryAfter } of answers) {
        expect([success, reset]).toEqual([false, answers[0]?.reset])
        // By the clock of this machine it would be an hour less, or two hours more.
        expect(Math.abs(retryAfter - HOUR)).toBeLessThan(HOUR / 2)
      }
      const until = answers[0]?.reset
      const looks = [await ratelimit.getRemaining('ada'), ...(await ratelimit.getRemainingAll(['ada']))]
      expect(looks).toMatchObject([0, 1].map(() => ({ remaining: 0, reset: until, blockedUntil: until })))
      const { reset, blockedUntil } = await block(ratelimit, 'ada', '90m')
      expect(reset).toBe(blockedUntil)
    } finally {
      vi.useRealTimers()
    }
  },
)

test('a block that comes while others charge the key lets none pass that begin later', async () => {
  const ratelimit = new Ratelimit({
    timeout: false,
    ...{ db: database.db, limiter: Ratelimit.fixedWindow(1e6, '1d'), prefix: 'blocked', use: [blocks()] },
  })
  await ratelimit.limit('ada')
  let isBlocked = false
  const late: boolean[] = []
  const caller = async () => {
    for (let calls = 0; calls < 40; calls++) {
      const beganLate = isBlocked
      const { success } = await ratelimit.limit('ada')
      if (beganLate) late.push(success)
    }
  }
  const callers = Array.from({ length: 8 }, caller)
  await block(ratelimit, 'ada', '1h')
  isBlocked = true
  await Promise.all(callers)
  expect(late.length).toBeGreaterThan(0)
  expect(late).not.toContain(true)
})

/** Lets another transaction be faster once to insert the row of a key that begins so. */
async function raceFor(start: string): Promise<void> {
  await database.script(`
    create sequence races;
    create function race() returns trigger language plpgsql as $$ begin
      if new.key like '${start}%' and pg_trigger_depth() = 1 and nextval('races') = 1 then
        insert into rate_limit_ephemeral (prefix, key, expires_at) values (new.prefix, new.key, 'infinity');
      end if;
      return new;
    end $$;
    create trigger race before insert on rate_limit_ephemeral for each row execute function race()`)
}

test('if another process makes a row of one list first, each list is charged once', async () => {
  const limits = ['raced 1', 'raced 2'].map((prefix) =>
    limit(prefix, { limiter: LIMITERS['fixed window'](5) }),
  )
  const keys = range(6).map((i) => `raced:${i}`)
  await raceFor('raced:3')
  const answers = await Promise.all(
    keys.map((key) => limitAll(limits.map((ratelimit) => ({ ratelimit, key })))),
  )
  expect(await database.rows('select is_called from races')).toEqual([{ is_called: true }])
  await database.script('drop function race cascade; drop sequence races')
  expect(answers.map(({ results }) => results.map(({ remaining }) => remaining))).toEqual(
    keys.map(() => [4, 4]),
  )
  for (const each of limits)
    expect(await each.getRemainingAll(keys)).toEqual(keys.map(() => expect.objectContaining({ used: 1 })))
})
