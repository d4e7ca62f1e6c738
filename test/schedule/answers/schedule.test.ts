import { block, blocks } from 'drizzle-ratelimit/lockout'
import { type NotScheduled, type Scheduled, schedule } from 'drizzle-ratelimit/schedule'
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import { type Limiter, type LimitResult, limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { anyPlan, type Plan } from '../../support/limits.ts'
import type { State } from '../../support/model.ts'
import { runs } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
let clock: TestClock
beforeEach(() => {
  clock = new TestClock(1_000_000)
})

let prefixes = 0
function partner(limiter: Limiter, options: object = {}): Ratelimit {
  const prefix = `schedule ${prefixes++}`
  return new Ratelimit({
    db: database.db,
    limiter,
    prefix,
    clock: clock.now,
    cleanupProbability: 0,
    ...options,
  })
}

function scheduled(answer: Scheduled | NotScheduled): Scheduled {
  if (!answer.success) throw new Error('not scheduled')
  return answer
}

test.each([
  ['a continuous bucket', Ratelimit.tokenBucket(10, '1s', 1, { refill: 'continuous' })],
  ['gcra', Ratelimit.gcra(10, '1s', { burst: 1 })],
])('%s: calls start in their order, spaced exactly, up to `within`', async (_, limiter) => {
  const ratelimit = partner(limiter)
  const delays: number[] = []
  for (let i = 0; i < 4; i++) {
    const turn = scheduled(await schedule(ratelimit, 'key', { within: 300 }))
    expect(turn.startsAt).toBe(clock.ms + turn.delay)
    delays.push(turn.delay)
  }
  expect(delays).toEqual([0, 100, 200, 300])
  const row = () => database.rows('select * from rate_limit_ephemeral where prefix = $1', [ratelimit.prefix])
  const before = await row()
  expect(await schedule(ratelimit, 'key', { within: 300 })).toEqual({ success: false, retryAfter: 100 })
  expect(await row()).toEqual(before)
  clock.advance(99)
  expect(await schedule(ratelimit, 'key', { within: 300 })).toEqual({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await schedule(ratelimit, 'key', { within: 300 })).toMatchObject({ success: true, delay: 300 })
  // What is promised to others cannot be taken.
  expect(await ratelimit.limit('key')).toMatchObject({ success: false, retryAfter: 400 })
})

test('whole refills: calls start when they come', async () => {
  const ratelimit = partner(Ratelimit.tokenBucket(2, '1s', 2))
  const delays: number[] = []
  for (let i = 0; i < 6; i++) delays.push(scheduled(await schedule(ratelimit, 'key', { within: '5s' })).delay)
  expect(delays).toEqual([0, 0, 1000, 1000, 2000, 2000])
})

test('large rates do not starve', async () => {
  const ratelimit = partner(Ratelimit.tokenBucket(10, '1s', 10, { refill: 'continuous' }))
  expect(scheduled(await schedule(ratelimit, 'key', { rate: 8, within: 0 })).delay).toBe(0)
  const large = scheduled(await schedule(ratelimit, 'key', { rate: 10, within: '5s' }))
  expect(large.delay).toBe(800)
  // Small ones come after it, although they would have fitted before it.
  expect(scheduled(await schedule(ratelimit, 'key', { within: '5s' })).delay).toBe(900)
  expect(await schedule(ratelimit, 'key', { rate: 10.5, within: '5s' })).toEqual({
    success: false,
    retryAfter: Number.POSITIVE_INFINITY,
  })
})

test('calls at once get each start once', async () => {
  const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }))
  const turns = await Promise.all(
    Array.from({ length: 12 }, () => schedule(ratelimit, 'key', { within: '1s' })),
  )
  const delays = turns.flatMap((turn) => (turn.success ? [turn.delay] : []))
  expect(delays.toSorted((a, b) => a - b)).toEqual([0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000])
})

test.each([
  // Where more comes than fits, a statement gives starts up to the next refill only.
  ['whole refills', Ratelimit.tokenBucket(2, '1s', 3), 9],
  ['a continuous bucket', Ratelimit.tokenBucket(10, '1s', 2, { refill: 'continuous' }), 2],
  ['a bucket that begins empty', Ratelimit.tokenBucket(3, '1s', 3, { initialTokens: 0 }), 9],
  ['gcra', Ratelimit.gcra(10, '1s', { burst: 2 }), 2],
])(
  '%s: calls at once share a statement, and get the starts of calls one after the other',
  async (_, limiter, most) => {
    const { db, statements } = watch(database.db)
    const ratelimit = partner(limiter, { db })
    const answersOf = ({ success, ...more }: Scheduled | NotScheduled) => JSON.stringify({ success, ...more })
    for (const [rate, within, advance] of [
      [1, 2_500, 0],
      [0.7, 4_000, 1_234],
      [2, 100, 3_210],
      [3, 9_000, 777],
      [0.1, 0, 60_000],
      [4, 9_000, 1],
    ] as const) {
      clock.advance(advance)
      const oneByOne: string[] = []
      for (let i = 0; i < 30; i++)
        oneByOne.push(answersOf(await schedule(ratelimit, 'one', { rate, within })))
      const sent = statements.length
      const calls = Array.from({ length: 30 }, () => schedule(ratelimit, 'together', { rate, within }))
      const together = (await Promise.all(calls)).map(answersOf)
      // Calls that have to ask again may do so in another order.
      expect(together.toSorted()).toEqual(oneByOne.toSorted())
      expect(statements.length - sent).toBeLessThanOrEqual(most)
    }
  },
)

test('calls of many keys and times to wait share a statement', async () => {
  const { db, statements } = watch(database.db)
  const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }), { db })
  const keys = ['a', 'b', 'c', 'd']
  const all = (within: number) =>
    Promise.all(keys.map((key, i) => schedule(ratelimit, key, { within: within * i })))
  await all(0)
  const before = statements.length
  const turns = await all(50)
  expect(statements.length - before).toBe(1)
  expect(turns.map(({ success }) => success)).toEqual([false, false, true, true])
  const given = turns.filter(({ success }) => success).map(scheduled)
  expect(await Promise.all(given.map((turn) => turn.cancel()))).toEqual([true, true])
  expect(statements.length - before).toBe(2)
})

test('equal calls that are cancelled at once give back as if one after the other', async () => {
  const ratelimit = partner(Ratelimit.tokenBucket(4, '1s', 4))
  const turns = await Promise.all(
    Array.from({ length: 6 }, () => schedule(ratelimit, 'key', { rate: 2, within: '5s' })),
  )
  const [third, fourth] = turns.slice(2).map(scheduled)
  expect([third?.delay, fourth?.delay]).toEqual([1000, 1000])
  // The last two count on what the first of them would give back.
  expect(await Promise.all([third?.cancel(), fourth?.cancel()])).toEqual([false, false])
  const [fifth, sixth] = turns.slice(4).map(scheduled)
  expect(await Promise.all([fifth?.cancel(), sixth?.cancel()])).toEqual([true, true])
  expect(scheduled(await schedule(ratelimit, 'key', { rate: 4, within: '5s' })).delay).toBe(2000)
})

test('a row of another plan is refused', async () => {
  const options = { prefix: 'schedule another plan' }
  await partner(Ratelimit.tokenBucket(1, '1s', 1), options).limit('key')
  const ratelimit = partner(Ratelimit.gcra(1, '1s'), { ...options, onOtherPlan: 'throw' })
  await expect(schedule(ratelimit, 'key', { within: '1h' })).rejects.toMatchObject({ code: 'OTHER_PLAN' })
})

test('an expired row is swept after a call', async () => {
  const ratelimit = partner(Ratelimit.gcra(1, '1s'), { cleanupProbability: 1 })
  const { prefix } = ratelimit
  await schedule(partner(Ratelimit.gcra(1, '1s'), { prefix }), 'old', { within: 0 })
  clock.advance(3_600_000)
  await schedule(ratelimit, 'new', { within: 0 })
  await expect
    .poll(() => database.rows('select key from rate_limit_ephemeral where prefix = $1', [prefix]))
    .toEqual([{ key: 'new' }])
})

test('a denial is remembered, and a cancel ends it', async () => {
  const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }), { inMemoryBlock: true })
  await schedule(ratelimit, 'key', { within: 0 })
  const turn = scheduled(await schedule(ratelimit, 'key', { within: 100 }))
  expect(await ratelimit.limit('key')).toMatchObject({ success: false, retryAfter: 200 })
  expect(await turn.cancel()).toBe(true)
  expect(await ratelimit.limit('key')).toMatchObject({ success: false, retryAfter: 100 })
  expect(await turn.cancel()).toBe(false)
  clock.advance(100)
  expect(await ratelimit.limit('key')).toMatchObject({ success: true })
})

test('a cancel gives nothing back to a row that is made for it', async () => {
  const mails = partner(Ratelimit.tokenBucket(1, '10s', 10, { initialTokens: 8 }))
  const { cancel } = scheduled(await schedule(mails, 'a', { within: '10m', rate: 7 }))
  await database.rows('delete from rate_limit_ephemeral where prefix = $1', [mails.prefix])
  expect(await cancel()).toBe(false)
  expect((await mails.getRemaining('a')).remaining).toBe(8)
})

test('a rollback takes the start back', async () => {
  const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }))
  await database.db
    .transaction(async (tx) => {
      expect(scheduled(await schedule(ratelimit, 'key', { within: 0, tx })).delay).toBe(0)
      tx.rollback()
    })
    .catch(() => {})
  expect(scheduled(await schedule(ratelimit, 'key', { within: 0 })).delay).toBe(0)
})

// https://cs.opensource.google/go/x/time/+/master:rate/rate_test.go: ten tokens a second, two at once. `d` is a
// hundred milliseconds. Each step is a time, a number of tokens, and when they may be used.
describe('like the reservations of golang.org/x/time/rate', () => {
  const d = 100
  const bucket = (burst = 2) => partner(Ratelimit.tokenBucket(10, '1s', burst, { refill: 'continuous' }))
  const start = 1_000_000
  async function reserve(ratelimit: Ratelimit, at: number, rate: number, actsAt?: number) {
    clock.ms = start + at * d
    const turn = await schedule(ratelimit, 'key', { rate, within: '1h' })
    const acted = turn.success ? (turn.startsAt - start) / d : undefined
    expect([at, rate, acted]).toEqual([at, rate, actsAt])
    return turn.success ? turn : undefined
  }

  test('TestSimpleReserve', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 2, 0)
    await reserve(ratelimit, 0, 2, 2)
    await reserve(ratelimit, 3, 2, 4)
  })

  test('TestMix', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 3, undefined)
    await reserve(ratelimit, 0, 2, 0)
    clock.ms = start + d
    expect(await ratelimit.limit('key', { rate: 2 })).toMatchObject({ success: false })
    await reserve(ratelimit, 1, 2, 2)
    expect(await ratelimit.limit('key')).toMatchObject({ success: false })
    clock.ms = start + 3 * d
    expect(await ratelimit.limit('key')).toMatchObject({ success: true })
  })

  test('TestCancelInvalid: too much for the bucket charges nothing', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 2, 0)
    await reserve(ratelimit, 0, 3, undefined)
    await reserve(ratelimit, 0, 2, 2)
  })

  test('TestCancelLast', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 2, 0)
    const last = await reserve(ratelimit, 0, 2, 2)
    clock.ms = start + d
    expect(await last?.cancel()).toBe(true)
    await reserve(ratelimit, 1, 2, 2)
  })

  test('TestCancelTooLate', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 2, 0)
    const late = await reserve(ratelimit, 0, 2, 2)
    clock.ms = start + 3 * d
    expect(await late?.cancel()).toBe(false)
    await reserve(ratelimit, 3, 2, 4)
  })

  test('TestCancel0Tokens', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 2, 0)
    const first = await reserve(ratelimit, 0, 1, 1)
    await reserve(ratelimit, 0, 1, 2)
    // The one after it counts on what it would give back.
    expect(await first?.cancel()).toBe(false)
    await reserve(ratelimit, 0, 1, 3)
  })

  test('TestCancel1Token', async () => {
    const ratelimit = bucket()
    await reserve(ratelimit, 0, 2, 0)
    const first = await reserve(ratelimit, 0, 2, 2)
    await reserve(ratelimit, 0, 1, 3)
    clock.ms = start + 2 * d - 1
    expect(await first?.cancel()).toBe(true)
    await reserve(ratelimit, 2, 2, 4)
  })

  test('TestCancelMulti', async () => {
    const ratelimit = bucket(4)
    await reserve(ratelimit, 0, 4, 0)
    const first = await reserve(ratelimit, 0, 3, 3)
    await reserve(ratelimit, 0, 1, 4)
    const third = await reserve(ratelimit, 0, 1, 5)
    clock.ms = start + d
    expect(await third?.cancel()).toBe(true)
    expect(await first?.cancel()).toBe(true)
    await reserve(ratelimit, 1, 3, 5)
  })
})

test('a call that is cancelled gives its place to the next one', async () => {
  const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }))
  await schedule(ratelimit, 'key', { within: '1s' })
  const turn = scheduled(await schedule(ratelimit, 'key', { within: '1s' }))
  expect(await turn.cancel()).toBe(true)
  expect(scheduled(await schedule(ratelimit, 'key', { within: '1s' })).delay).toBe(turn.delay)
})

describe('a call is cancelled once', () => {
  async function lastOfThree(ratelimit: Ratelimit) {
    for (let i = 0; i < 2; i++) await schedule(ratelimit, 'key', { within: '1s' })
    return scheduled(await schedule(ratelimit, 'key', { within: '1s' }))
  }

  test('although another one has its place by then', async () => {
    const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }))
    const turn = await lastOfThree(ratelimit)
    expect(await Promise.all([turn.cancel(), turn.cancel()])).toEqual([true, false])
    expect(await schedule(ratelimit, 'key', { within: '1s' })).toMatchObject({ delay: turn.delay })
    expect(await turn.cancel()).toBe(false)
    expect(await schedule(ratelimit, 'key', { within: '1s' })).toMatchObject({ delay: turn.delay + 100 })
  })

  test('and again if nothing was given back, or nothing can have been', async () => {
    let fails: string | undefined
    const { db } = watch(database.db, () => {
      if (fails) throw Object.assign(new Error('away'), { code: fails, syscall: 'connect' })
    })
    const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }), { db })
    const turn = await lastOfThree(ratelimit)
    const later = scheduled(await schedule(ratelimit, 'key', { within: '1s' }))
    expect(await turn.cancel()).toBe(false)
    expect(await later.cancel()).toBe(true)
    fails = 'ECONNREFUSED'
    await expect(turn.cancel()).rejects.toMatchObject({ code: 'UNREACHABLE' })
    fails = undefined
    expect(await turn.cancel()).toBe(true)
  })
})

describe('what gives units back lets no two calls start together', () => {
  async function afterAWait(takesFirst: (ratelimit: Ratelimit) => Promise<() => Promise<unknown>>) {
    const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }))
    const giveBack = await takesFirst(ratelimit)
    for (const delay of [100, 200]) {
      expect(await schedule(ratelimit, 'key', { within: '1s' })).toMatchObject({ delay })
    }
    await giveBack()
    expect(await schedule(ratelimit, 'key', { within: '1s' })).toMatchObject({ delay: 300 })
    // As soon as all have started, units come back again.
    clock.advance(600)
    expect(await ratelimit.limit('key')).toMatchObject({ success: true })
    expect(await ratelimit.limit('key', { rate: -1 })).toMatchObject({ returned: 1 })
    expect(await ratelimit.limit('key')).toMatchObject({ success: true })
  }

  test('a release, and a commit below the estimate', async () => {
    await afterAWait(async (ratelimit) => {
      const reserved = allowed(await ratelimit.reserve('key', { rate: 1 }))
      return async () => expect(await reserved.release()).toMatchObject({ returned: 0 })
    })
    await afterAWait(async (ratelimit) => {
      const reserved = allowed(await ratelimit.reserve('key', { rate: 1 }))
      return async () => expect(await reserved.commit(0.25)).toMatchObject({ returned: 0 })
    })
  })

  test('a negative rate, alone and in a list', async () => {
    await afterAWait(async (ratelimit) => {
      await ratelimit.limit('key')
      return async () => expect(await ratelimit.limit('key', { rate: -1 })).toMatchObject({ returned: 0 })
    })
    await afterAWait(async (ratelimit) => {
      await ratelimit.limit('key')
      const request = { ratelimit, key: 'key' }
      return () =>
        limitAll([
          { ...request, rate: -1 },
          { ...request, key: 'other' },
        ])
    })
  })

  test('reserveAll', async () => {
    await afterAWait(async (ratelimit) => {
      const request = { ratelimit, key: 'key', rate: 1 }
      const reserved = allowed(await reserveAll([request, { ...request, key: 'other' }]))
      return () => reserved.release()
    })
  })

  test.each([
    [99, 0],
    [100, 1],
  ])('until the last start: %d ms after the call, %d comes back', async (ms, returned) => {
    const ratelimit = partner(Ratelimit.tokenBucket(1, '100ms', 1))
    await ratelimit.limit('key')
    expect(await schedule(ratelimit, 'key', { within: '1s' })).toMatchObject({ delay: 100 })
    clock.advance(ms)
    expect(await ratelimit.limit('key', { rate: -1 })).toMatchObject({ returned })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: returned })
  })

  test('a forced debt that came after the starts is given back', async () => {
    const ratelimit = partner(Ratelimit.gcra(10, '1s', { burst: 1 }))
    await ratelimit.limit('key')
    expect(await schedule(ratelimit, 'key', { within: '1s' })).toMatchObject({ delay: 100 })
    await ratelimit.limit('key', { rate: 8, force: true })
    const returned = returnedIn(await ratelimit.limit('key', { rate: -8 }))
    expect(returned).toBeGreaterThan(7)
    const next = scheduled(await schedule(ratelimit, 'key', { within: '10s' }))
    expect(next.delay).toBeCloseTo(200 + (8 - returned) * 100, 0)
  })
})

test('more than the size of a bucket comes at once: no more than its size starts', async () => {
  const ratelimit = partner(Ratelimit.tokenBucket(5, '1s', 5))
  const delays: number[] = []
  for (const rate of [2, 4, 3, 1, 1, 5]) {
    delays.push(scheduled(await schedule(ratelimit, 'key', { rate, within: '1m' })).delay)
  }
  expect(delays).toEqual([0, 1000, 2000, 2000, 2000, 3000])
})

function returnedIn(answer: LimitResult): number {
  return answer.success ? (answer.returned ?? 0) : 0
}

/** What happened to a bucket: a call took at a time, or something came back. */
interface Event {
  readonly at: number
  readonly takes: number
  readonly isPlanned?: boolean
}

/** Whether a bucket allows all calls at the times at which they start. */
function isAllowed({ rules }: Plan, events: readonly Event[]): boolean {
  const inTurn = events.toSorted((one, other) => one.at - other.at || +!!other.isPlanned - +!!one.isPlanned)
  let state: State | undefined
  return inTurn.every(({ at, takes }) => {
    const before = rules.forward(state ?? rules.fresh(at), at)
    state = rules.take(before, takes, at)
    return takes <= 0 || rules.fits(before, at, takes - 1e-6)
  })
}

const anyBucketPlan = anyPlan.filter(({ algorithm }) => algorithm === 'tokenBucket' || algorithm === 'gcra')
const anyAct = fc.record({
  does: fc.constantFrom(
    'schedule',
    'schedule',
    'schedule',
    'at once',
    'limit',
    'reserve',
    'settle',
    'refund',
    'cancel',
  ),
  share: fc.constantFrom(1, 0.2, 0.4, 0.5, 0.7),
  which: fc.nat(20),
  wait: fc.constantFrom(0, 0, 0.1, 0.5, 1, 1.7, 4),
})

test('whatever is taken, given back and cancelled, a bucket allows every call at its start', async () => {
  await fc.assert(
    fc.asyncProperty(anyBucketPlan, fc.array(anyAct, { minLength: 4, maxLength: 25 }), async (plan, acts) => {
      const { rules, limiter, stepMs } = plan
      const ratelimit = partner(limiter)
      clock.ms = 1_000_000
      // A bucket that does not start full begins to fill with its first call.
      const begins = await ratelimit.limit('key', { rate: rules.capacity })
      const events: Event[] = [{ at: clock.ms, takes: begins.success ? rules.capacity : 0 }]
      const turns: { turn: Scheduled; event: Event }[] = []
      const open: { commit(actual: number): Promise<{ returned?: number }>; rate: number }[] = []
      const within = Math.min(20 * rules.periodMs, 3e12)
      const plannedFor = (rate: number, turn: Scheduled | NotScheduled) => {
        if (!turn.success) return
        const event = { at: turn.startsAt, takes: rate, isPlanned: turn.delay > 0 }
        events.push(event)
        turns.push({ turn, event })
      }
      for (const { does, share, which, wait } of acts) {
        clock.advance(Math.round(wait * stepMs))
        const rate = rules.capacity * share
        if (does === 'schedule') plannedFor(rate, await schedule(ratelimit, 'key', { rate, within }))
        if (does === 'at once') {
          const calls = Array.from({ length: 5 }, () => schedule(ratelimit, 'key', { rate, within }))
          for (const turn of await Promise.all(calls)) plannedFor(rate, turn)
        }
        if (does === 'limit' && (await ratelimit.limit('key', { rate })).success) {
          events.push({ at: clock.ms, takes: rate })
        }
        if (does === 'reserve') {
          const reserved = await ratelimit.reserve('key', { rate })
          if (!reserved.success) continue
          events.push({ at: clock.ms, takes: rate })
          open.push({ commit: (actual) => reserved.commit(actual), rate })
        }
        if (does === 'settle') {
          const [one] = open.splice(which % (open.length + 1), 1)
          const settled = await one?.commit(one.rate * share - (share === 1 ? one.rate : 0))
          events.push({ at: clock.ms, takes: -(settled?.returned ?? 0) })
        }
        if (does === 'refund') {
          events.push({ at: clock.ms, takes: -returnedIn(await ratelimit.limit('key', { rate: -rate })) })
        }
        if (does === 'cancel') {
          const [one] = turns.splice(which % (turns.length + 1), 1)
          if (one && (await one.turn.cancel())) events.splice(events.indexOf(one.event), 1)
        }
      }
      expect(isAllowed(plan, events)).toBe(true)
    }),
    runs(60),
  )
})

test('no limit schedules at once', async () => {
  const turn = await schedule(partner(Ratelimit.unlimited()), 'key', { within: 0 })
  expect(turn).toMatchObject({ success: true, delay: 0, startsAt: clock.ms })
  expect(await scheduled(turn).cancel()).toBe(false)
})

test.each([
  [
    'a window',
    () => schedule(partner(Ratelimit.fixedWindow(5, '1m')), 'key', { within: 0 }),
    'INVALID_OPTION',
  ],
  ['credits', () => schedule(creditsOn(database).credits as never, 'key', { within: 0 }), 'INVALID_OPTION'],
  [
    'dryRun',
    () => schedule(partner(Ratelimit.gcra(5, '1m'), { dryRun: true }), 'key', { within: 0 }),
    'INVALID_OPTION',
  ],
  [
    'a refund',
    () => schedule(partner(Ratelimit.gcra(5, '1m')), 'key', { rate: -1, within: 0 }),
    'INVALID_RATE',
  ],
])('%s is refused', async (_, call, code) => {
  await expect(call()).rejects.toMatchObject({ code })
})

test('a call of 0 units may start at once, behind any queue and any block, and writes nothing', async () => {
  const ratelimit = partner(Ratelimit.gcra(1, '1s'), { use: [blocks()] })
  for (let call = 0; call < 3; call++) await schedule(ratelimit, 'key', { within: '10s' })
  await block(ratelimit, 'key', '1h')
  const used = await ratelimit.getRemaining('key')
  const scheduled = await schedule(ratelimit, 'key', { rate: 0, within: 0 })
  expect(scheduled).toMatchObject({ success: true, delay: 0, startsAt: clock.ms })
  expect(scheduled.success && (await scheduled.cancel())).toBe(false)
  expect(await ratelimit.getRemaining('key')).toEqual(used)
})
