import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar.ts'
import { parseDuration } from '../../../src/duration.ts'
import {
  type Allowed,
  type Database,
  type Limiter,
  Ratelimit,
  type RatelimitConfig,
  type Reservation,
  type Reserved,
  rateLimitEphemeral,
  rateLimitTables,
} from '../../../src/index.ts'
import { tokenOf } from '../../../src/reservations/token.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { uncounted } from '../../support/limits.ts'
import { runs } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'
import { HOUR_MS, JANUARY, kinds, oneOfEachKind, type QuotaUnderTest, quotaOn, TEN, UNDO } from './ten.ts'

// Reservations that are settled by their text. What settling does is tested in reserve.test.ts; here it has to
// do the same.

const database = useDatabase()
const SECRET = 'correct horse battery staple'
const REFUSED = { code: 'INVALID_OPTION' }

function allowed(reserved: Reserved): Allowed & Reservation {
  if (!reserved.success) throw new Error('denied')
  return reserved
}

function textOf(reserved: Reserved): string {
  return String(allowed(reserved))
}

interface Processes extends QuotaUnderTest {
  /** Shares nothing with `quota` but the configuration and the tables. */
  readonly other: Ratelimit
}

function processes(limiter: Limiter, options: Partial<RatelimitConfig> = {}): Processes {
  const one = quotaOn(database, limiter, { reservationSecret: SECRET, ...options } as RatelimitConfig)
  return { ...one, other: new Ratelimit(one.config) }
}

/** The JSON that a text holds. */
function insideOf(text: string): string {
  return Buffer.from(text.split('.')[1] ?? '', 'base64url').toString()
}

describe.each(kinds)('$name', ({ limiter, of }) => {
  test.each([0, 1, 4, 9, 13])('another process settles it with %d', async (actual) => {
    const { quota, other } = processes(limiter)
    const text = textOf(await quota.reserve('key', { rate: 4 }))
    const settled: Allowed = await other.settle(text, actual)
    const remaining = Math.max(10 - actual, 0)
    expect(settled).toMatchObject({ success: true, limit: 10, remaining, retryAfter: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: actual, remaining })
  })

  test('a partly granted reservation gives back its rest', async () => {
    const { quota, other } = processes(limiter)
    await quota.limit('key', { rate: 7 })
    const reserved = await quota.reserve('key', { rate: 6, atLeast: 2 })
    expect(reserved).toMatchObject({ granted: 3 })
    await other.settle(textOf(reserved), 1)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 8 })
  })

  test('after a rollback of its settling it may be settled again', async () => {
    const { quota, other } = processes(limiter)
    const text = textOf(await quota.reserve('key', { rate: 4 }))
    const undone = database.db.transaction(async (tx) => {
      await other.settle(text, 9, { tx })
      expect(await quota.getRemaining('key', { tx })).toMatchObject({ used: 9 })
      throw UNDO
    })
    await expect(undone).rejects.toBe(UNDO)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
    await database.db.transaction((tx) => other.settle(text, 9, { tx }))
    expect(await quota.getRemaining('key')).toMatchObject({ used: 9 })
  })

  test('a larger plan settles what was reserved before the upgrade', async () => {
    const { quota, other } = processes(Ratelimit.fixedWindow(1, '1h'))
    const text = textOf(await quota.reserve('key', { rate: 4, limiter }))
    const larger = of(100, '1h').limiter
    const { used } = await quota.getRemaining('key', { limiter: larger })
    await other.settle(text, 1, { limiter: larger })
    expect(await quota.getRemaining('key', { limiter: larger })).toMatchObject({ used: used - 3 })
  })

  type Step =
    | { readonly op: 'limit'; readonly rate: number; readonly force: boolean; readonly plan: number }
    | { readonly op: 'reserve'; readonly rate: number; readonly plan: number; readonly isPart: boolean }
    | { readonly op: 'settle'; readonly which: number; readonly actual: number; readonly plan: number }
    | { readonly op: 'wait'; readonly hours: number }

  const plan = fc.constantFrom(0, 0, 1, 2, 3)
  const anyStep: fc.Arbitrary<Step> = fc.oneof(
    fc.record({
      op: fc.constant('limit' as const),
      rate: fc.integer({ min: -3, max: 5 }),
      force: fc.boolean(),
      plan,
    }),
    fc.record({
      op: fc.constant('reserve' as const),
      rate: fc.integer({ min: 0, max: 8 }),
      isPart: fc.boolean(),
      plan,
    }),
    fc.record({
      op: fc.constant('settle' as const),
      which: fc.nat(),
      actual: fc.integer({ min: 0, max: 12 }),
      plan,
    }),
    fc.record({ op: fc.constant('wait' as const), hours: fc.constantFrom(0.5, 3, 10, 800) }),
  )

  test('settling by the text does what commit does, whatever else happens', async () => {
    const steps = fc.array(anyStep, { minLength: 4, maxLength: 12, size: 'max' })
    const both = async (sequence: readonly Step[], dryRun: boolean) => {
      const options = { thresholds: [0.3, 0.5, 0.8, 1, 1.2], dryRun }
      const text = processes(limiter, options)
      const plain = quotaOn(database, limiter, { ...options, clock: text.clock.now })
      const plans = [undefined, of(10, '1h').limiter, of(25, '1h').limiter, Ratelimit.unlimited()]
      const open: { text: string; reservation: Reservation; hasPlan: boolean }[] = []
      for (const step of sequence) {
        if (step.op === 'wait') {
          text.clock.advance(step.hours * HOUR_MS)
          continue
        }
        const limiter = plans[step.plan]
        if (step.op === 'limit') {
          const call = { rate: step.rate, force: step.force, limiter }
          expect(await text.quota.limit('key', call)).toEqual(await plain.quota.limit('key', call))
        } else if (step.op === 'reserve') {
          const { rate } = step
          const call = { rate, limiter, ...(step.isPart && rate > 1 ? { atLeast: 1 } : {}) }
          const [one, two] = [await text.quota.reserve('key', call), await plain.quota.reserve('key', call)]
          expect(JSON.stringify(one)).toEqual(JSON.stringify(two))
          if (one.success && two.success) {
            open.push({ text: String(one), reservation: two, hasPlan: limiter !== undefined })
          }
        } else {
          const [settled] = open.splice(step.which % Math.max(open.length, 1), 1)
          if (!settled) continue
          const by = { limiter: settled.hasPlan ? (limiter ?? text.config.limiter) : limiter }
          const committed = await settled.reservation.commit(step.actual, by)
          expect(await text.other.settle(settled.text, step.actual, by)).toEqual(committed)
        }
        const look = await plain.quota.getRemaining('key')
        expect(await text.quota.getRemaining('key')).toEqual(look)
        const rows = await Promise.all([text, plain].map((each) => each.rows()))
        const [one, two] = rows.map((all) => all.map(({ stored }) => ({ ...(stored as object), prefix: '' })))
        expect(one).toEqual(two)
      }
    }
    await fc.assert(fc.asyncProperty(steps, fc.boolean(), both), runs(10))
  })
})

/** What settles an estimate in each way, under a plan. */
const ways: readonly ((
  each: Processes,
  rate: number,
  plan: Limiter,
) => Promise<(actual: number) => Promise<unknown>>)[] = [
  async ({ quota }, rate, limiter) => {
    const reserved = allowed(await quota.reserve('key', { rate }))
    return (actual) => reserved.commit(actual, { limiter })
  },
  async ({ quota, other }, rate, limiter) => {
    const text = textOf(await quota.reserve('key', { rate }))
    return (actual) => other.settle(text, actual, { limiter })
  },
  async ({ quota: ratelimit }, rate, limiter) => {
    const reserved = await Ratelimit.reserveAll([{ ratelimit, key: 'key', rate }])
    if (!reserved.success) throw new Error('denied')
    return (actual) => reserved.commit([actual], { limiters: [limiter] })
  },
]

describe('after a change of plan, under the present one', () => {
  const changes = [
    { from: calendarWindow(10, 'day'), to: calendarWindow(1000, 'month'), passes: '1d' },
    { from: Ratelimit.fixedWindow(10, '1h'), to: Ratelimit.fixedWindow(1000, '1d'), passes: '2h' },
    { from: calendarWindow(10, 'month'), to: Ratelimit.tokenBucket(1, '10d', 1000), passes: '1h' },
    { from: Ratelimit.tokenBucket(1, '1d', 10), to: Ratelimit.slidingWindow(1000, '10d'), passes: '1h' },
  ] as const

  test.each(changes)('$from.algorithm.name to $to.algorithm.name', async ({ from, to, passes }) => {
    for (const reserve of ways) {
      const each = processes(from)
      const { clock, quota } = each
      const settle = await reserve(each, 4, to)
      await quota.limit('key', { rate: 500, limiter: to })
      clock.advance(parseDuration(passes, 'It'))
      const { used } = await quota.getRemaining('key', { limiter: to })
      await settle(6)
      expect(await quota.getRemaining('key', { limiter: to })).toMatchObject({ used: used + 2 })
    }
  })

  const fractions = [...kinds.filter(({ takesFractions }) => takesFractions), ...uncounted]
  const wholes = oneOfEachKind.filter(({ takesFractions }) => !takesFractions)
  const roundings = fractions.flatMap((from) =>
    wholes.map((to) => ({ from, to, change: `${from.name}, then ${to.name}` })),
  )

  test.each(roundings)('a missing fraction is rounded up for whole units, $change', async ({ from, to }) => {
    for (const reserve of ways) {
      for (const [actual, more] of [
        [4, 2],
        [3, 1],
        [2, 0],
        [0, 0],
      ] as const) {
        const each = processes(from.limiter)
        const settle = await reserve(each, 2.7, to.limiter)
        await each.quota.limit('key', { rate: 3, limiter: to.limiter })
        await settle(actual)
        expect(await each.quota.getRemaining('key', { limiter: to.limiter })).toMatchObject({
          used: 3 + more,
        })
      }
    }
  })
})

test('a settling reports crossed thresholds, once', async () => {
  const { quota, other } = processes(TEN['fixed window'], { thresholds: [0.5, 0.8, 1] })
  await quota.limit('key', { rate: 4 })
  const text = textOf(await quota.reserve('key', { rate: 6 }))
  expect(await other.settle(text, 4)).toMatchObject({ crossed: [0.5, 0.8] })
  expect(await quota.limit('key', { rate: 2 })).toMatchObject({ crossed: [1] })
})

test('thresholds of a settled estimate are shares of the plan that it was reserved under', async () => {
  const { quota, other } = processes(TEN['fixed window'], { thresholds: [0.5] })
  const text = textOf(await quota.reserve('key', { rate: 6 }))
  const limiter = Ratelimit.fixedWindow(100, '10h')
  expect(await other.settle(text, 6, { limiter })).toMatchObject({ limit: 100, crossed: [0.5] })
})

test('an ended window gets nothing back, and the next one is charged the difference', async () => {
  const { clock, quota, other, rows } = processes(TEN['calendar month'])
  const [less, more] = [
    textOf(await quota.reserve('key', { rate: 4 })),
    textOf(await quota.reserve('key', { rate: 4 })),
  ]
  clock.ms = JANUARY.end
  await quota.limit('key', { rate: 3 })
  const before = await rows()
  expect(await other.settle(less, 1)).toMatchObject({ success: true, remaining: 7 })
  expect(await rows()).toEqual(before)
  expect(await other.settle(more, 6)).toMatchObject({ success: true, remaining: 5 })
})

test('a bucket settles fractions', async () => {
  const { quota, other } = processes(TEN['continuous bucket'])
  await other.settle(textOf(await quota.reserve('key', { rate: 2.5 })), 0.25)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0.25 })
})

test('a window without a limit settles the count, and crosses nothing', async () => {
  const limiter = Ratelimit.fixedWindow(Number.POSITIVE_INFINITY, '1h')
  const { quota, other } = processes(limiter, { thresholds: [0.8] })
  const settled = await other.settle(textOf(await quota.reserve('key', { rate: 4 })), 5)
  expect(settled).toMatchObject({ limit: Number.POSITIVE_INFINITY })
  expect(settled).not.toHaveProperty('crossed')
  expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
})

test('an upgrade to unlimited, and back from it, refuses no cost', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  const unlimited = Ratelimit.unlimited()
  const before = textOf(await quota.reserve('key', { rate: 4 }))
  const after = textOf(await quota.reserve('key', { rate: 4, limiter: unlimited }))
  expect(await other.settle(before, 6, { limiter: unlimited })).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
  // What was not charged is not given back.
  expect(await other.settle(after, 1, { limiter: TEN['fixed window'] })).toMatchObject({ remaining: 6 })
  expect(await other.settle(after, 7, { limiter: TEN['fixed window'] })).toMatchObject({ remaining: 3 })
})

test('a reservation without a limit leaves the reservations of others under a limit', async () => {
  const limiter = TEN['calendar month']
  const { quota, other, rows } = processes(limiter)
  const text = textOf(await quota.reserve('key', { rate: 4, limiter: Ratelimit.unlimited() }))
  await quota.reserve('key', { rate: 5 })
  const before = await rows()
  for (const actual of [4, 0]) {
    expect(await other.settle(text, actual, { limiter })).toMatchObject({ remaining: 5 })
  }
  expect(await rows()).toEqual(before)
})

test('an unlimited plan is settled without a statement', async () => {
  const { db, statements } = watch(database.db)
  const { quota, other } = processes(Ratelimit.unlimited(), { db })
  expect(await other.settle(textOf(await quota.reserve('key', { rate: 4 })), 5)).toMatchObject({
    success: true,
    remaining: Number.POSITIVE_INFINITY,
  })
  expect(statements).toEqual([])
})

test('several at once are each settled by themselves', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  const all = await Promise.all([1, 2, 3, 4, 5].map(() => quota.reserve('key', { rate: 2 })))
  await Promise.all(all.map((reserved) => other.settle(textOf(reserved), 1)))
  expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
})

test('two equal reservations of one millisecond have two texts', async () => {
  const { quota } = processes(TEN['fixed window'])
  const one = allowed(await quota.reserve('key', { rate: 2 }))
  await one.release()
  const other = allowed(await quota.reserve('key', { rate: 2 }))
  expect(String(one)).not.toBe(String(other))
  const [first, second] = [one, other].map((each) => JSON.parse(insideOf(String(each))) as unknown[])
  expect(first?.slice(1)).toEqual(second?.slice(1))
})

/** So many that its arithmetic is another one. */
const LARGE = Ratelimit.slidingWindow(Number.MAX_SAFE_INTEGER, '10h')

// Texts are valid for as long as their secret. If one of these has to change, it is a breaking change.
test.each([
  { limiter: Ratelimit.tokenBucket(1, '1h', 10), layout: 'lastRefill,tokens' },
  { limiter: Ratelimit.gcra(10, '1h'), layout: 'tokens,windowStart' },
  { limiter: Ratelimit.fixedWindow(10, '1h'), layout: 'count,windowStart' },
  { limiter: Ratelimit.slidingWindow(10, '1h'), layout: 'count,prevCount,windowStart' },
  { limiter: LARGE, layout: 'count,prevCount,windowStart' },
  { limiter: calendarWindow(10, 'month'), layout: 'count,prevCount,tokens,windowStart' },
  { limiter: Ratelimit.unlimited(), layout: '' },
])('the text of $limiter.algorithm.name names the layout of its rows', async ({ limiter, layout }) => {
  const { quota } = processes(limiter)
  const [, , , named] = JSON.parse(insideOf(textOf(await quota.reserve('key')))) as unknown[]
  expect(named).toBe(layout)
})

test('a sliding window of many settles what a small one has charged', async () => {
  const { quota, config } = processes(TEN['sliding window'])
  const text = textOf(await quota.reserve('key', { rate: 4 }))
  await new Ratelimit({ ...config, limiter: LARGE } as RatelimitConfig).settle(text, 1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
})

test('the text is the same each time, can stand in a URL, and is short', async () => {
  const { quota } = processes(TEN['calendar month'])
  const reserved = allowed(await quota.reserve('org:1', { rate: 4 }))
  const text = String(reserved)
  expect(`${reserved}`).toBe(text)
  expect(encodeURIComponent(text)).toBe(text)
  expect(text.length).toBeLessThan(300)
})

test('any key comes back as it was, the longest too', async () => {
  const keys = ['"\\\n', 'ключ 🗝', '\u0001'.repeat(1000), '€'.repeat(333)]
  const { quota, other } = processes(TEN['fixed window'])
  for (const key of keys) {
    await other.settle(textOf(await quota.reserve(key, { rate: 4 })), 1)
    expect(await quota.getRemaining(key)).toMatchObject({ used: 1 })
  }
})

test('the text of a hashed key has the hash and not the key', async () => {
  const { quota, other } = processes(TEN['fixed window'], { hashKeys: true })
  const key = 'alice@example.com'
  const text = textOf(await quota.reserve(key, { rate: 4 }))
  expect(insideOf(text)).toContain(createHash('sha256').update(key).digest('hex'))
  expect(insideOf(text)).not.toContain('alice')
  await other.settle(text, 1)
  expect(await quota.getRemaining(key)).toMatchObject({ used: 1 })
})

test('a dry run gives back nothing for a call that it let pass', async () => {
  const { quota, other, rows } = processes(TEN['fixed window'], { dryRun: true })
  await quota.limit('key', { rate: 8 })
  const before = await rows()
  const reserved = await quota.reserve('key', { rate: 4 })
  expect(reserved).toMatchObject({ wouldDeny: { success: false } })
  for (const actual of [0, 9]) {
    expect(await other.settle(textOf(reserved), actual)).toMatchObject({ success: true, remaining: 2 })
  }
  expect(await rows()).toEqual(before)
})

describe('during an outage that onError allows', () => {
  /** A reservation whose charge met the driver's error. */
  async function reservedDuring(code: string) {
    let failures = 1
    const driver = () =>
      Promise.reject(new Error('Failed query', { cause: Object.assign(new Error(code), { code }) }))
    const { db } = watch(database.db, () => failures-- > 0 && driver())
    const each = processes(TEN['fixed window'], { db, onError: 'allow', cleanupProbability: 0 })
    const reserved = await each.quota.reserve('key', { rate: 4 })
    expect(reserved).toMatchObject({ degraded: true })
    return { ...each, text: textOf(reserved) }
  }

  test('the whole cost is charged later', async () => {
    const { other, text } = await reservedDuring('ECONNREFUSED')
    await other.settle(text, 3)
    expect(await other.getRemaining('key')).toMatchObject({ used: 3 })
  })

  test('a reservation that may have been charged is neither charged twice nor given back', async () => {
    const { other, text } = await reservedDuring('ECONNRESET')
    await other.limit('key', { rate: 5 })
    await other.settle(text, 3)
    expect(await other.getRemaining('key')).toMatchObject({ used: 5 })
    await other.settle(text, 6)
    expect(await other.getRemaining('key')).toMatchObject({ used: 7 })
  })
})

describe('refused before any SQL', () => {
  /** A reservation of four, and what has to refuse it: a limiter on a database whose statements are seen. */
  async function foreign(
    options: Partial<RatelimitConfig> = {},
    { limiter, of = TEN['fixed window'] }: { limiter?: Limiter; of?: Limiter } = {},
  ) {
    const { config, quota } = processes(of)
    const text = textOf(await quota.reserve('key', { rate: 4, limiter }))
    const { db, statements } = watch(database.db)
    const stranger = new Ratelimit({ ...config, db, ...options } as RatelimitConfig)
    const settle = (actual = 1, by: Parameters<Ratelimit['settle']>[2] = {}) =>
      stranger.settle(text, actual, by)
    return { text, config, quota, stranger, settle, statements }
  }

  test.each<[string, Partial<RatelimitConfig>]>([
    ['another secret', { reservationSecret: `${SECRET}!` }],
    ['another prefix', { prefix: 'stranger' }],
    ['the other table', { durable: true }],
    ['a table of another name', { tables: rateLimitTables({ ephemeral: 'theirs' }) }],
    ['another algorithm', { limiter: TEN['sliding window'] }],
    ['no secret', { reservationSecret: undefined as unknown as string }],
  ])('%s', async (_, options) => {
    const { settle, quota, statements } = await foreign(options)
    expect(await errorOf(settle)).toMatchObject(REFUSED)
    expect(statements).toEqual([])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
  })

  test('a customer on a plan, without the plan', async () => {
    const limiter = Ratelimit.fixedWindow(100, '10h')
    const { settle, statements } = await foreign({}, { limiter })
    expect((await errorOf(settle)).message).toContain('limiter')
    expect(statements).toEqual([])
    expect(await settle(5, { limiter })).toMatchObject({ remaining: 95 })
  })

  test.each([-1, Number.NaN, 1.5, Number.POSITIVE_INFINITY])('a cost of %d', async (actual) => {
    const { settle, statements } = await foreign()
    expect(await errorOf(() => settle(actual))).toMatchObject({ code: 'INVALID_RATE' })
    expect(statements).toEqual([])
  })

  test.each([null, '5', [], true, new Date(0)])('a cost that is not a number: %s', async (cost) => {
    const { settle, statements, quota } = await foreign()
    const actual = cost as unknown as number
    expect(await errorOf(() => settle(actual))).toMatchObject({ code: 'INVALID_RATE' })
    expect(statements).toEqual([])
    const reserved = allowed(await quota.reserve('other'))
    expect(await errorOf(() => reserved.commit(actual))).toMatchObject({ code: 'INVALID_RATE' })
  })

  test('an invalid limiter, and an invalid tx', async () => {
    const { settle, statements } = await foreign()
    expect(await errorOf(() => settle(1, { limiter: {} as Limiter }))).toMatchObject(REFUSED)
    expect(await errorOf(() => settle(1, { tx: database.db as Database }))).toMatchObject(REFUSED)
    expect(statements).toEqual([])
  })

  const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

  test('a text with any character changed, and any last character but its own', async () => {
    const { text, stranger, settle, statements } = await foreign()
    const changed = [...text].map((old, i) => {
      const next = ALPHABET[(ALPHABET.indexOf(old) + 1) % ALPHABET.length]
      return `${text.slice(0, i)}${next}${text.slice(i + 1)}`
    })
    // The last one has two bits that decoders do not read. A text of its own would be settled once more.
    const ends = [...ALPHABET, '', '=', ' ', '\n', 'A'].map((end) => text.slice(0, -1) + end)
    const longer = ['=', ' ', '\n', 'A', '.', `.${text}`].map((end) => text + end)
    const forged = [...changed, ...ends, ...longer].filter((each) => each !== text)
    expect(forged.length).toBeGreaterThan(200)
    for (const each of forged) {
      expect(await errorOf(() => stranger.settle(each, 1))).toMatchObject(REFUSED)
    }
    expect(statements).toEqual([])
    expect(await settle()).toMatchObject({ success: true })
  })

  test('the content of one text with the signature of another', async () => {
    const { text, quota, stranger, statements } = await foreign()
    const more = textOf(await quota.reserve('key', { rate: 5 }))
    const [signed, signature] = [text.slice(0, -43), more.slice(-43)]
    expect(await errorOf(() => stranger.settle(signed + signature, 1))).toMatchObject(REFUSED)
    expect(statements).toEqual([])
  })

  test('anything else', async () => {
    const { stranger, statements } = await foreign()
    const base64Url = fc.string({ unit: fc.constantFrom(...ALPHABET), maxLength: 200 })
    const signature = fc.string({ unit: fc.constantFrom(...ALPHABET), minLength: 43, maxLength: 43 })
    const likeOne = fc.tuple(fc.constant('r1'), base64Url, signature).map((parts) => parts.join('.'))
    const any = fc.oneof(fc.string({ unit: 'binary' }), base64Url, likeOne, fc.anything())
    await fc.assert(
      fc.asyncProperty(any, async (garbage) => {
        expect(await errorOf(() => stranger.settle(garbage as string, 1))).toMatchObject(REFUSED)
      }),
      runs(300),
    )
    const reserved = await foreign().then(({ quota }) => quota.reserve('key'))
    for (const bad of ['', 'r1', 'r1..', `r1.${'A'.repeat(1_000_000)}`, undefined, null, reserved]) {
      expect(await errorOf(() => stranger.settle(bad as string, 1))).toMatchObject(REFUSED)
    }
    expect(statements).toEqual([])
  })

  test('no error has the text, the secret or the key in it', async () => {
    const limiter = Ratelimit.slidingWindow(10, '10h')
    const errors = await Promise.all(
      [
        { prefix: 'stranger' },
        { durable: true },
        { reservationSecret: `${SECRET}!` },
        { limiter },
        { reservationSecret: undefined as unknown as string },
      ].map(async (options) => {
        const { settle, text } = await foreign(options)
        return { error: await errorOf(settle), text }
      }),
    )
    const short = await errorOf(() => processes(limiter, { reservationSecret: 'hunter2' }))
    for (const { error, text } of [...errors, { error: short, text: 'hunter2' }]) {
      const told = `${error.message} ${error.stack} ${JSON.stringify(error)}`
      for (const secret of [text, text.slice(3, 40), SECRET]) expect(told).not.toContain(secret)
    }
  })
})

test('without a secret a reservation has no text, and commit still settles it', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'])
  const reserved = allowed(await quota.reserve('key', { rate: 4 }))
  const error = await errorOf(() => String(reserved))
  expect(error).toMatchObject(REFUSED)
  expect(error.message).toContain('reservationSecret')
  expect(await reserved.commit(1)).toMatchObject({ remaining: 9 })
})

test.each(['', 'fifteen letters', 5, null, {}])('a secret of %j is refused', async (secret) => {
  const options = { reservationSecret: secret as string }
  expect(await errorOf(() => processes(TEN['fixed window'], options))).toMatchObject(REFUSED)
})

test('a limiter that became unlimited settles its earlier reservation', async () => {
  const { quota, config } = processes(TEN['fixed window'])
  const text = textOf(await quota.reserve('key', { rate: 4 }))
  const unlimited = new Ratelimit({ ...config, limiter: Ratelimit.unlimited() })
  expect(await unlimited.settle(text, 1)).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
})

test('a limiter that is limited again does not settle an estimate that was never charged', async () => {
  const { quota, config } = processes(TEN['fixed window'])
  const unlimited = new Ratelimit({ ...config, limiter: Ratelimit.unlimited() })
  const text = textOf(await unlimited.reserve('key', { rate: 4 }))
  expect(await quota.settle(text, 4)).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
})

test('a settling under another algorithm reports no thresholds', async () => {
  const { quota, other } = processes(TEN['interval bucket'], { thresholds: [0.5] })
  const text = textOf(await quota.reserve('key', { rate: 6 }))
  const settled = await other.settle(text, 6, { limiter: TEN['fixed window'] })
  expect(settled).not.toHaveProperty('crossed')
})

test('an estimate that a bucket paid up to its tolerance counts as paid under every plan', async () => {
  const { quota, other } = processes(Ratelimit.tokenBucket(1, '1h', 3))
  await quota.limit('key', { rate: 4e-10 })
  await quota.limit('key', { rate: 4e-10 })
  const reserved = await quota.reserve('key', { rate: 3, atLeast: 1 })
  expect(allowed(reserved).granted).toBeLessThan(3)
  expect(await other.settle(textOf(reserved), 3, { limiter: TEN['fixed window'] })).toMatchObject({
    remaining: 10,
  })
})

test('a secret of sixteen characters is enough', async () => {
  const { quota, other } = processes(TEN['fixed window'], { reservationSecret: 'sixteen letters!' })
  expect(await other.settle(textOf(await quota.reserve('key')), 0)).toMatchObject({ remaining: 10 })
})

test('a settling ends the remembered denial', async () => {
  const { quota } = processes(TEN['fixed window'], { inMemoryBlock: true })
  const text = textOf(await quota.reserve('key', { rate: 10 }))
  expect(await quota.limit('key')).toMatchObject({ success: false })
  await quota.settle(text, 0)
  expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 9 })
})

test('the text of a balance needs a name, and is then settled once', async () => {
  const { db, statements } = watch(database.db)
  const { quota, other, config } = processes(Ratelimit.balance(), { db })
  await quota.grant('key', 500)
  const unnamed = allowed(await quota.reserve('key', { rate: 100 }))
  expect(() => String(unnamed)).toThrow(expect.objectContaining(REFUSED))
  await unnamed.release()
  // As it was signed before it was refused.
  const old = await tokenOf(
    { namespace: { prefix: config.prefix }, table: { table: rateLimitEphemeral } } as never,
    SECRET,
    {
      estimate: {
        key: 'key',
        paid: { rate: 100, windowStart: null, usedBefore: 0 },
        ...{ refundableUntil: null, windowEnd: null, how: 'charged', limit: Number.POSITIVE_INFINITY },
        layout: 'count,lastRefill,prevCount,tokens',
      },
      hasPlan: false,
    },
  )
  statements.length = 0
  await expect(other.settle(old, 0)).rejects.toMatchObject(REFUSED)
  expect(statements).toEqual([])

  const text = textOf(await quota.reserve('key', { rate: 100, id: 'job', expires: '1h' }))
  expect(textOf(await quota.reserve('key', { rate: 100, id: 'job', expires: '1h' }))).toBe(text)
  for (const each of [other, quota, other]) await each.settle(text, 0)
  await other.settle({ key: 'key', id: 'job' }, 0)
  expect(await quota.getRemaining('key')).toMatchObject({ remaining: 500 })
})

test('the text of a name is signed, and belongs to its rows', async () => {
  const { quota, other, config } = processes(TEN['fixed window'], { hashKeys: true })
  const text = textOf(await quota.reserve('ada', { rate: 4, id: 'ada', expires: '1h' }))
  expect(encodeURIComponent(text)).toBe(text)
  expect(insideOf(text)).not.toContain('ada')
  const [version, inside, signature] = text.split('.')
  const forged = Buffer.from(insideOf(text).replace('quota', 'Quota')).toString('base64url')
  for (const wrong of [`r1.${inside}.${signature}`, `${version}.${forged}.${signature}`, `${text}A`]) {
    await expect(other.settle(wrong, 0)).rejects.toMatchObject(REFUSED)
  }
  const elsewhere = new Ratelimit({ ...config, prefix: `${config.prefix} other` })
  await expect(elsewhere.settle(text, 0)).rejects.toMatchObject(REFUSED)
  const durable = new Ratelimit({ ...config, durable: true } as RatelimitConfig)
  await expect(durable.settle(text, 0)).rejects.toMatchObject(REFUSED)
  expect(await other.settle(text, 1)).toMatchObject({ remaining: 9 })
  expect(await other.settle(text, 1)).toMatchObject({ repeated: true })
  await expect(other.settle(text, 2)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})

test('a name without a secret has no text', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'])
  const reserved = allowed(await quota.reserve('key', { id: 'job', expires: '1h' }))
  expect(() => String(reserved)).toThrow(expect.objectContaining(REFUSED))
})
