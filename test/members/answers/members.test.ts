import { Members, type MembersConfig, type TxOptions } from 'drizzle-ratelimit/members'
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import type { Database } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
let clock: TestClock
beforeEach(() => {
  clock = new TestClock(1_000_000_000)
})

const HOUR_MS = 3_600_000
const NEVER = Number.POSITIVE_INFINITY

let prefixes = 0
function devices(options: object = {}): Members {
  const common = { db: database.db, clock: clock.now, cleanupProbability: 0 }
  const own: MembersConfig = { ...common, prefix: `members ${prefixes++}`, limit: 2, window: '1h' }
  return new Members({ ...own, ...options })
}

function rowsOf({ prefix }: Members) {
  return database.rows('select *, xmin::text from rate_limit_durable where prefix = $1 order by key', [
    prefix,
  ])
}

test('different members count until their window ends, and the one after the last waits exactly', async () => {
  const account = devices()
  const reset = clock.ms + HOUR_MS
  const first = await account.add('ada', 'phone')
  expect(first).toEqual({ success: true, isNew: true, limit: 2, remaining: 1, reset, retryAfter: 0 })
  clock.advance(1000)
  expect(await account.add('ada', 'laptop')).toMatchObject({ isNew: true, remaining: 0, reset: reset + 1000 })
  const before = await rowsOf(account)
  const retryAfter = HOUR_MS - 1000
  const denied = { success: false, limit: 2, remaining: 0, reset, retryAfter }
  expect(await account.add('ada', 'tablet')).toEqual(denied)
  expect(await rowsOf(account)).toEqual(before)
  clock.advance(retryAfter - 1)
  expect(await account.add('ada', 'tablet')).toEqual({ ...denied, retryAfter: 1 })
  clock.advance(1)
  expect(await account.add('ada', 'tablet')).toMatchObject({ success: true, isNew: true, remaining: 0 })
  expect(await account.add('ada', 'phone')).toMatchObject({ success: false, retryAfter: 1000 })
  // Another key has its own.
  expect(await account.add('eve', 'phone')).toMatchObject({ isNew: true, remaining: 1 })
})

test('a member that counts costs nothing, in one statement, and its window begins again', async () => {
  const { db, statements } = watch(database.db)
  const account = devices({ db })
  for (const device of ['phone', 'laptop']) await account.add('ada', device)
  const since = clock.ms
  clock.advance(HOUR_MS - 1)
  statements.length = 0
  const again = await account.add('ada', 'phone')
  expect(again).toMatchObject({ success: true, isNew: false, remaining: 0, reset: clock.ms + HOUR_MS })
  expect(statements).toHaveLength(1)
  expect(await account.list('ada')).toEqual([
    { member: 'laptop', since, seen: since, expires: since + HOUR_MS },
    { member: 'phone', since, seen: clock.ms, expires: clock.ms + HOUR_MS },
  ])
  // In the last millisecond of its window it counts, and then it does not.
  expect(await account.add('ada', 'tablet')).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect([await account.has('ada', 'laptop'), await account.has('ada', 'phone')]).toEqual([false, true])
  expect(await account.add('ada', 'phone')).toMatchObject({ isNew: false, remaining: 1 })
  expect(await account.add('ada', 'laptop')).toMatchObject({ isNew: true, remaining: 0 })
})

test('without a window members count until they are removed', async () => {
  const seats = devices({ window: undefined })
  expect(await seats.add('team', 'ada')).toMatchObject({ remaining: 1, reset: NEVER })
  clock.advance(1)
  await seats.add('team', 'eve')
  clock.advance(1e12)
  expect(await seats.add('team', 'bob')).toMatchObject({ success: false, reset: NEVER, retryAfter: NEVER })
  expect(await seats.list('team')).toMatchObject([{ expires: NEVER }, { member: 'eve' }])
  expect([await seats.remove('team', 'ada'), await seats.remove('team', 'ada')]).toEqual([true, false])
  expect(await seats.add('team', 'bob')).toMatchObject({ success: true, remaining: 0 })
  expect(await seats.cleanup()).toBe(0)
})

test('a smaller plan keeps who counts already, and lets new ones in when enough have gone', async () => {
  const account = devices({ limit: 4 })
  for (const device of ['a', 'b', 'c', 'd']) {
    await account.add('ada', device)
    clock.advance(1000)
  }
  expect(await account.add('ada', 'b', { limit: 2 })).toMatchObject({ success: true, limit: 2, remaining: 0 })
  // Of four, three have to go, and b was added last.
  const denied = await account.add('ada', 'e', { limit: 2 })
  expect(denied).toMatchObject({ success: false, retryAfter: HOUR_MS - 1000 })
  clock.advance(HOUR_MS - 1001)
  expect(await account.add('ada', 'e', { limit: 2 })).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await account.add('ada', 'e', { limit: 2 })).toMatchObject({ success: true, isNew: true })
})

test('a limit of 0 writes nothing, not even the head of a key', async () => {
  const none = devices({ limit: 0 })
  expect(await none.add('ada', 'phone')).toMatchObject({ success: false, retryAfter: NEVER })
  expect(await rowsOf(none)).toEqual([])
})

test('keys and members of any spelling are different', async () => {
  const account = devices({ limit: 1 })
  const keys = ['a', 'a/61', 'a/', 'a/6', 'a#', 'a%', 'A']
  for (const key of keys) expect(await account.add(key, 'a')).toMatchObject({ isNew: true })
  for (const member of ['A', ' a', 'a ', 'ä', 'a/61', '😀'])
    expect(await account.add('a', member)).toMatchObject({ success: false })
  for (const key of keys) expect(await account.list(key)).toMatchObject([{ member: 'a' }])
})

test('with hashKeys the table has neither key nor member', async () => {
  const account = devices({ hashKeys: 'a secret of sixteen' })
  await account.add('ada', 'phone')
  const texts = (await rowsOf(account)).map(({ key }) => String(key))
  expect(texts.join()).not.toMatch(/ada|phone|70686f6e65/)
  expect(await account.add('ada', 'phone')).toMatchObject({ isNew: false })
  expect([await account.has('ada', 'phone'), await account.has('ada', 'tablet')]).toEqual([true, false])
  expect(await account.list('ada')).toMatchObject([{ member: expect.stringMatching(/^[0-9a-f]{64}$/) }])
})

test('a clock that was set back keeps who counts, and for no longer than a window', async () => {
  const account = devices()
  await account.add('ada', 'phone')
  clock.advance(-HOUR_MS)
  expect(await account.list('ada')).toMatchObject([{ expires: clock.ms + 2 * HOUR_MS }])
  clock.advance(-1)
  expect(await account.list('ada')).toMatchObject([{ seen: clock.ms, expires: clock.ms + HOUR_MS }])
  expect(await account.add('ada', 'phone')).toMatchObject({ isNew: false })
})

test('rows that have expired are deleted, and change nothing', async () => {
  const account = devices()
  await account.add('ada', 'phone')
  clock.advance(2 * HOUR_MS)
  expect(await account.list('ada')).toEqual([])
  expect(await account.cleanup()).toBe(1)
  clock.advance(HOUR_MS)
  expect(await account.cleanup()).toBe(1)
  expect(await rowsOf(account)).toEqual([])
  expect(await account.add('ada', 'laptop')).toMatchObject({ isNew: true, remaining: 1 })
})

describe('in a transaction', () => {
  test('a member commits or rolls back with the work', async () => {
    const account = devices({ limit: 1 })
    await undone(database.db, async (tx) => {
      expect(await account.add('ada', 'phone', { tx })).toMatchObject({ isNew: true })
      expect(await account.add('ada', 'phone', { tx })).toMatchObject({ isNew: false })
      expect(await account.add('ada', 'laptop', { tx })).toMatchObject({ success: false })
      expect(await account.has('ada', 'phone', { tx })).toBe(true)
    })
    expect(await rowsOf(account)).toEqual([])
    await database.db.transaction((tx) => account.add('ada', 'laptop', { tx }))
    expect(await account.list('ada')).toMatchObject([{ member: 'laptop' }])
    await database.db.transaction((tx) => account.remove('ada', 'laptop', { tx }))
    expect(await account.list('ada')).toEqual([])
  })

  test('a denial leaves the rest of the transaction, and no row', async () => {
    const account = devices({ limit: 0 })
    await database.db.transaction(async (tx) => {
      expect(await account.add('ada', 'phone', { tx })).toMatchObject({ success: false })
      expect(await account.remove('ada', 'phone', { tx })).toBe(false)
    })
    expect(await rowsOf(account)).toEqual([])
  })
})

test('a retry after a lost answer adds nobody twice', async () => {
  let loses = true
  const { db } = watch(database.db)
  const transaction: typeof db.transaction = async (work, config) => {
    const result = await db.transaction(work, config)
    if (loses) throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
    return result
  }
  const account = devices({ db: { ...db, transaction }, limit: 1 })
  await expect(account.add('ada', 'phone')).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  loses = false
  expect(await account.add('ada', 'phone')).toMatchObject({ success: true, isNew: false })
  expect(await account.list('ada')).toHaveLength(1)
})

test('any calls are those of a model', async () => {
  const call = fc.record({
    does: fc.constantFrom('add', 'add', 'add', 'remove'),
    member: fc.constantFrom('a', 'b', 'c', 'd'),
    limit: fc.integer({ min: 0, max: 3 }),
    later: fc.integer({ min: 0, max: 40 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 25 }), async (calls) => {
      const account = devices({ window: 100 })
      const seen = new Map<string, number>()
      for (const { does, member, limit, later } of calls) {
        clock.advance(later)
        for (const [each, at] of seen) if (at + 100 <= clock.ms) seen.delete(each)
        if (does === 'remove') {
          expect(await account.remove('key', member)).toBe(seen.delete(member))
          continue
        }
        const others = [...seen].filter(([each]) => each !== member).map(([, at]) => at + 100)
        const isNew = !seen.has(member)
        const frees = others.toSorted((one, other) => one - other)[others.length - limit] ?? NEVER
        const answer = await account.add('key', member, { limit })
        if (!isNew || others.length < limit) {
          seen.set(member, clock.ms)
          const remaining = Math.max(limit - others.length - 1, 0)
          expect(answer).toMatchObject({ success: true, isNew, remaining, reset: clock.ms + 100 })
        } else {
          expect(answer).toMatchObject({ success: false, retryAfter: frees - clock.ms })
        }
        const counted = (await account.list('key')).map((one) => one.member)
        expect(counted.toSorted()).toEqual([...seen.keys()].toSorted())
      }
    }),
    runs(30),
  )
})

describe('refuses before any SQL', () => {
  test.each([
    ['a member that is no text', { member: 5 }, 'INVALID_OPTION'],
    ['an empty member', { member: '' }, 'INVALID_OPTION'],
    ['a member that is too long', { member: 'x'.repeat(600) }, 'INVALID_OPTION'],
    ['half of a surrogate pair', { member: '\ud800' }, 'INVALID_OPTION'],
    ['an empty key', { key: '' }, 'INVALID_KEY'],
    ['a limit below 0', { options: { limit: -1 } }, 'INVALID_LIMIT'],
    ['a limit of parts', { options: { limit: 1.5 } }, 'INVALID_LIMIT'],
    ['a large limit', { options: { limit: 10_001 } }, 'INVALID_LIMIT'],
    ['an unknown option', { options: { rate: 1 } }, 'INVALID_OPTION'],
  ])('%s', async (_, call: { key?: unknown; member?: unknown; options?: object }, code) => {
    const { db, statements } = watch(database.db)
    const { key = 'ada', member = 'phone', options = {} } = call
    const refused = devices({ db }).add(key as string, member as string, options)
    await expect(refused).rejects.toMatchObject({ code })
    expect(statements).toEqual([])
  })

  test.each([
    ['a limit', { limit: -1 }, 'INVALID_LIMIT'],
    ['a window', { window: 'long' }, 'INVALID_DURATION'],
    ['a window of 0', { window: 0 }, 'INVALID_DURATION'],
    ['an option', { limiter: 1 }, 'INVALID_OPTION'],
  ])('%s of the constructor', (_, options, code) => {
    expect(() => devices(options)).toThrow(expect.objectContaining({ code }))
  })
})

test.each([
  [{}, 'off'],
  [{ synchronousCommit: true }, 'on'],
] as const)(
  'with %o calls commit with synchronous_commit = %s, and never those in a transaction',
  async (options, setting) => {
    // What a commit waits for cannot be seen from outside, so a trigger writes the setting down.
    await database.script(`
    create table if not exists settings (prefix text, done text, setting text);
    create or replace function write_down() returns trigger language plpgsql as $$ begin
      insert into settings values (coalesce(new.prefix, old.prefix), tg_op, current_setting('synchronous_commit'));
      return null; end $$;
    create or replace trigger written after insert or update or delete on rate_limit_durable
      for each row execute function write_down();`)
    const account = devices(options)
    const written = async () => {
      const rows = await database.rows('select setting from settings where prefix = $1', [account.prefix])
      return rows.at(-1)?.['setting']
    }
    const add = (options: TxOptions) => account.add('ada', 'phone', options)
    const remove = (options: TxOptions) => account.remove('ada', 'phone', options)
    const calls: readonly ((options: TxOptions) => Promise<unknown>)[] = [add, add, remove]
    for (const call of calls) {
      await call({})
      expect(await written()).toBe(setting)
    }
    for (const call of calls) {
      await database.db.transaction((tx) => call({ tx }))
      expect(await written()).toBe('on')
    }
    await database.script('drop trigger written on rate_limit_durable')
  },
)

test('a driver that has no connection may throw an event in place of an error', async () => {
  // The driver of Neon does so with the event of its WebSocket.
  const error = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
  const db: Database = {
    execute: async () => ({ rows: [] }),
    transaction: () => Promise.reject({ type: 'error', error }),
    refreshMaterializedView: undefined,
  }
  const refused = { name: 'RatelimitError', code: 'UNREACHABLE', cause: error }
  await expect(devices({ db }).add('ada', 'phone')).rejects.toMatchObject(refused)
})
