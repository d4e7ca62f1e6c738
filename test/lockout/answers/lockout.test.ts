import { block, lockout, unblock } from 'drizzle-ratelimit/lockout'
import { RateLimiterMemory, type RateLimiterRes } from 'rate-limiter-flexible'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota, reserveAll } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()
const MINUTE = 60_000
const HOUR = 3_600_000
const DAY = 86_400_000
const limiter = lockout(3, '15m', { block: '1m', factor: 2, max: '10m', forgive: '1d' })
let clock: TestClock
beforeEach(() => {
  clock = new TestClock()
})

let prefixes = 0
function logins(options: object = {}): Quota {
  const prefix = `lockout ${prefixes++}`
  return new Quota({
    durable: false,
    db: database.db,
    limiter,
    prefix,
    clock: clock.now,
    cleanupProbability: 0,
    ...options,
  })
}

/** Three failures: the last one starts a block. */
async function fail(ratelimit: Quota): Promise<number> {
  const answers = []
  for (let i = 0; i < 3; i++) answers.push(await ratelimit.limit('ada'))
  expect(answers.map(({ success }) => success)).toEqual([true, true, true])
  const started = answers.map((answer) => (answer.success ? answer.blockedUntil : undefined))
  expect(started.slice(0, 2)).toEqual([undefined, undefined])
  return (started[2] ?? Number.NaN) - clock.ms
}

test('each block is longer, up to the longest, and its end is exact', async () => {
  const ratelimit = logins()
  for (const minutes of [1, 2, 4, 8, 10, 10]) {
    expect(await fail(ratelimit)).toBe(minutes * MINUTE)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: minutes * MINUTE })
    clock.advance(minutes * MINUTE - 1)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, remaining: 0, retryAfter: 1 })
    clock.advance(1)
  }
})

test('a key is forgiven a day after the end of its last block', async () => {
  const ratelimit = logins()
  for (const minutes of [1, 2]) {
    await fail(ratelimit)
    clock.advance(minutes * MINUTE)
  }
  clock.advance(DAY - 1)
  expect(await fail(ratelimit)).toBe(4 * MINUTE)
  clock.advance(4 * MINUTE + DAY)
  expect(await fail(ratelimit)).toBe(MINUTE)
})

test('failures that are too far apart start no block', async () => {
  const ratelimit = logins()
  for (let i = 0; i < 6; i++) {
    expect(await ratelimit.limit('ada')).not.toHaveProperty('blockedUntil')
    clock.advance(10 * MINUTE)
  }
})

test('what a block denies writes nothing, and is answered from memory if it may be', async () => {
  const ratelimit = logins({ inMemoryBlock: true })
  await fail(ratelimit)
  const rows = () =>
    database.rows('select xmin::text, * from rate_limit_ephemeral where prefix = $1', [ratelimit.prefix])
  const before = await rows()
  expect(await ratelimit.limit('ada')).toMatchObject({ success: false })
  expect(await rows()).toEqual(before)
  await database.script('alter table rate_limit_ephemeral rename to away')
  clock.advance(MINUTE - 1)
  expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 1 })
  await database.script('alter table away rename to rate_limit_ephemeral')
  clock.advance(1)
  expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
})

test('a sweep forgets no block and no level', async () => {
  const ratelimit = logins()
  await fail(ratelimit)
  clock.advance(MINUTE + DAY - 1)
  expect(await ratelimit.cleanup()).toBe(0)
  expect(await fail(ratelimit)).toBe(2 * MINUTE)
  clock.advance(2 * MINUTE + 2 * DAY)
  expect(await ratelimit.cleanup()).toBe(1)
})

test('a failure that is given back lifts the block, and the next one is as long', async () => {
  const ratelimit = logins()
  expect(await fail(ratelimit)).toBe(MINUTE)
  expect(await ratelimit.limit('ada', { rate: -1 })).toMatchObject({ success: true, remaining: 1 })
  expect(await ratelimit.limit('ada')).toMatchObject({ blockedUntil: clock.ms + MINUTE })
  clock.advance(MINUTE)
  expect(await fail(ratelimit)).toBe(2 * MINUTE)
})

test('an attempt that is reserved counts if it fails only', async () => {
  const ratelimit = logins()
  for (let i = 0; i < 10; i++) {
    const attempt = await ratelimit.reserve('ada')
    expect(attempt.success).toBe(true)
    if (attempt.success) await attempt.release()
  }
  expect(await fail(ratelimit)).toBe(MINUTE)
})

describe('an attempt that starts a block, and is given back long after its end, leaves no trace', () => {
  const levels = lockout(1, '15m', { block: '1m', factor: 2, max: '1d', forgive: '1d' })
  type Attempt = (ratelimit: Quota) => Promise<() => Promise<unknown>>
  const ways: readonly (readonly [string, Attempt])[] = [
    [
      'release',
      async (ratelimit) => {
        const attempt = await ratelimit.reserve('ada')
        if (!attempt.success) throw new Error('denied')
        return () => attempt.release()
      },
    ],
    [
      'settle by name',
      async (ratelimit) => {
        await ratelimit.reserve('ada', { rate: 1, id: 'first', expires: '2d' })
        return () => ratelimit.settle({ key: 'ada', id: 'first' }, 0)
      },
    ],
    [
      'reserveAll',
      async (ratelimit) => {
        const request = { ratelimit, key: 'ada', rate: 1 }
        const attempt = await reserveAll([request, { ...request, key: 'eve' }])
        if (!attempt.success) throw new Error('denied')
        return () => attempt.release()
      },
    ],
    [
      'a negative rate with its start',
      async (ratelimit) => {
        const answer = await ratelimit.limit('ada')
        const start = answer.success ? answer.start : undefined
        return () => ratelimit.limit('ada', { rate: -1, ...(start === undefined ? {} : { start }) })
      },
    ],
  ]

  async function nextBlock(ratelimit: Quota): Promise<number> {
    const answer = await ratelimit.limit('ada')
    return answer.success ? (answer.blockedUntil ?? Number.NaN) - clock.ms : Number.NaN
  }

  test.each(ways)('%s', async (_, attempt) => {
    const ratelimit = logins({ limiter: levels, durable: true })
    const giveBack = await attempt(ratelimit)
    clock.advance(20 * HOUR)
    await giveBack()
    await giveBack().catch(() => {})
    clock.advance(4 * HOUR + 1)
    expect(await nextBlock(ratelimit)).toBe(MINUTE)
  })

  test('what came before and after it stays', async () => {
    const ratelimit = logins({ limiter: levels })
    expect(await nextBlock(ratelimit)).toBe(MINUTE)
    clock.advance(MINUTE)
    const second = await ratelimit.reserve('ada')
    const other = await ratelimit.limit('ada', { rate: -1, start: 0 })
    expect(other).toMatchObject({ returned: 0 })
    clock.advance(HOUR)
    // The second block is as if it had not been, and so the third one takes its length.
    expect(second.success && (await second.release())).toMatchObject({ returned: 0 })
    expect(await nextBlock(ratelimit)).toBe(2 * MINUTE)
    // A block that is under way stays.
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 2 * MINUTE })
  })

  test('failures of the next window still count', async () => {
    const ratelimit = logins()
    for (let i = 0; i < 2; i++) await ratelimit.limit('ada')
    const last = await ratelimit.reserve('ada')
    clock.advance(HOUR)
    await ratelimit.limit('ada')
    await ratelimit.limit('ada')
    expect(last.success && (await last.release())).toMatchObject({ returned: 0, remaining: 1 })
    const answer = await ratelimit.limit('ada')
    expect(answer).toMatchObject({ success: true, blockedUntil: clock.ms + MINUTE })
  })
})

test('one of many calls at once starts the block', async () => {
  const ratelimit = logins()
  const answers = await Promise.all(Array.from({ length: 20 }, () => ratelimit.limit('ada')))
  expect(answers.filter(({ success }) => success)).toHaveLength(3)
  expect(answers.filter((answer) => answer.success && answer.blockedUntil !== undefined)).toHaveLength(1)
})

test('forced charges at once block for as long as one after the other', async () => {
  const [atOnce, inTurn] = [logins(), logins()]
  const forced = (ratelimit: Ratelimit) => ratelimit.limit('ada', { rate: 3, force: true })
  const expected = [await forced(inTurn), await forced(inTurn), await forced(inTurn)]
  expect(await Promise.all(expected.map(() => forced(atOnce)))).toEqual(expected)
})

describe('in a list', () => {
  async function nearlyBlocked(options: object = {}) {
    const ratelimit = logins(options)
    for (let i = 0; i < 2; i++) await ratelimit.limit('ada')
    return { ratelimit, key: 'ada' }
  }

  test('the failure that starts a block is charged only if all are allowed', async () => {
    const one = await nearlyBlocked()
    const full = logins({ limiter: Ratelimit.fixedWindow(0, '1h') })
    expect(await limitAll([one, { ratelimit: full, key: 'ada' }])).toMatchObject({ success: false })
    expect(await one.ratelimit.getRemaining('ada')).toMatchObject({ remaining: 1 })
    const both = await limitAll([one, { ratelimit: logins(), key: 'ada' }])
    expect(both).toMatchObject({ success: true, results: [{ blockedUntil: clock.ms + MINUTE }, {}] })
    expect(await one.ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: MINUTE })
  })

  test('an attempt with an id starts one block, however often it is sent', async () => {
    const { ratelimit } = await nearlyBlocked()
    const once = { id: 'attempt:3', for: '1d' } as const
    expect(await ratelimit.limit('ada', { once })).toMatchObject({ blockedUntil: clock.ms + MINUTE })
    clock.advance(10)
    const again = await ratelimit.limit('ada', { once })
    expect(again).toMatchObject({ success: true, repeated: true })
    expect(again).not.toHaveProperty('blockedUntil')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: MINUTE - 10 })
  })

  test('a dry run says what it would deny, and lengthens no block', async () => {
    const { ratelimit } = await nearlyBlocked({ dryRun: true })
    await ratelimit.limit('ada')
    clock.advance(10)
    expect(await ratelimit.limit('ada')).toMatchObject({
      ...{ success: true, wouldDeny: { retryAfter: MINUTE - 10 } },
    })
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ reset: clock.ms + MINUTE - 10 })
  })

  test('a failure by force during a block starts the next one, which is longer', async () => {
    const { ratelimit } = await nearlyBlocked()
    await ratelimit.limit('ada')
    clock.advance(10)
    const forced = await ratelimit.limit('ada', { force: true })
    expect(forced).toMatchObject({ success: true, blockedUntil: clock.ms + 2 * MINUTE })
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 2 * MINUTE })
  })
})

describe('block and unblock', () => {
  test('a key is blocked at once and to the millisecond, whatever it has used', async () => {
    const ratelimit = logins()
    expect(await block(ratelimit, 'ada', '5m')).toMatchObject({ remaining: 0, reset: clock.ms + 5 * MINUTE })
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ remaining: 0, reset: clock.ms + 5 * MINUTE })
    expect(await ratelimit.limit('ada', { rate: -1 })).toMatchObject({ remaining: 0 })
    clock.advance(5 * MINUTE - 1)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    // It was no failure of the key's.
    expect(await fail(ratelimit)).toBe(MINUTE)
    expect(await block(ratelimit, 'ada', '2m')).toMatchObject({ reset: clock.ms + 2 * MINUTE })
  })

  test.each([
    ['a limit', limiter],
    ['no limit', lockout(Number.POSITIVE_INFINITY, '1m', { block: '1h' })],
  ])('a refund under %s lifts no block by hand', async (_, own) => {
    const ratelimit = logins({ limiter: own })
    await block(ratelimit, 'ada', '5m')
    for (const rate of [-1, -Number.MAX_SAFE_INTEGER]) {
      expect(await ratelimit.limit('ada', { rate })).toMatchObject({ returned: 0 })
      expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 5 * MINUTE })
    }
  })

  test('unblock ends a block and forgets the earlier ones', async () => {
    const ratelimit = logins({ inMemoryBlock: true })
    await fail(ratelimit)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false })
    await unblock(ratelimit, 'ada')
    expect(await fail(ratelimit)).toBe(MINUTE)
  })

  test('in a transaction', async () => {
    const ratelimit = logins()
    await database.db
      .transaction(async (tx) => {
        await block(ratelimit, 'ada', '5m', { tx })
        tx.rollback()
      })
      .catch(() => {})
    expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
  })

  test('a shorter block in a transaction ends sooner, whatever a memory has', async () => {
    const ratelimit = logins({ inMemoryBlock: true })
    await block(ratelimit, 'ada', '10m')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 10 * MINUTE })
    await database.db.transaction((tx) => block(ratelimit, 'ada', '1m', { tx }))
    clock.advance(MINUTE - 1)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
  })

  test('a forced charge is refused, and the block stays', async () => {
    const ratelimit = logins()
    await block(ratelimit, 'ada', '5m')
    await expect(ratelimit.limit('ada', { force: true })).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 300_000 })
  })

  test('together with another limit, it blocks the keys of that limit', async () => {
    const never = lockout(Number.POSITIVE_INFINITY, '1m', { block: '1h' })
    const blocked = logins({ limiter: never })
    const api = logins({ limiter: Ratelimit.tokenBucket(5, '1m', 5) })
    const both = () =>
      limitAll([
        { ratelimit: api, key: 'ada' },
        { ratelimit: blocked, key: 'ada' },
      ])
    expect(await both()).toMatchObject({ success: true })
    await block(blocked, 'ada', '1h')
    expect(await both()).toMatchObject({ success: false, retryAfter: 3_600_000 })
    expect(await api.getRemaining('ada')).toMatchObject({ remaining: 4 })
    clock.advance(3_600_000)
    expect(await both()).toMatchObject({ success: true })
  })

  test.each([
    [
      'of another limit',
      () => block(logins({ limiter: Ratelimit.fixedWindow(5, '1m') }), 'ada', '1m'),
      'INVALID_OPTION',
    ],
    ['unblock of another limit', () => unblock(creditsOn(database).credits, 'ada'), 'INVALID_OPTION'],
    ['for longer than max', () => block(logins(), 'ada', '11m'), 'INVALID_DURATION'],
    ['for no time', () => block(logins(), 'ada', 0), 'INVALID_DURATION'],
  ])('%s: refused', async (_, call, code) => {
    await expect(call()).rejects.toMatchObject({ code })
  })
})

test.each([
  ['a factor below 1', () => lockout(5, '1m', { block: '1m', factor: 0.5 }), 'INVALID_OPTION'],
  ['a max below block', () => lockout(5, '1m', { block: '2m', max: '1m' }), 'INVALID_OPTION'],
  ['no block', () => lockout(5, '1m', { block: 0 }), 'INVALID_DURATION'],
  ['half a failure', () => lockout(0.5, '1m', { block: '1m' }), 'INVALID_LIMIT'],
])('%s is refused', (_, make, code) => {
  expect(make).toThrow(expect.objectContaining({ code }))
})

test('the message names the argument', () => {
  expect(() => lockout(0.5, '1m', { block: '1m' })).toThrow(/^failures must be/)
})

describe('compared with rate-limiter-flexible and its blockDuration', () => {
  beforeEach(() => vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] }))
  afterEach(() => vi.useRealTimers())

  test('the same attempts are denied, for as long', async () => {
    const theirs = new RateLimiterMemory({ points: 3, duration: 900, blockDuration: 60 })
    const fixed = lockout(3, '15m', { block: '1m' })
    const ours = logins({ limiter: fixed })
    const attempts = [0, 0, 0, 0, 1000, 58_999, 1, 0, 0, 0, 30_000, 30_000, 0, 0, 0]
    for (const passedMs of attempts) {
      clock.advance(passedMs)
      await vi.advanceTimersByTimeAsync(passedMs)
      const their = await theirs.consume('ada').then(
        () => 0,
        (denied: RateLimiterRes) => denied.msBeforeNext,
      )
      expect(await ours.limit('ada')).toMatchObject({ success: their === 0, retryAfter: their })
    }
  })
})
