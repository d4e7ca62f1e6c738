import fc from 'fast-check'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import type { StoredLimiter } from '../../../src/kernel/limits/algorithm.ts'
import { lockout } from '../../../src/lockout/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { type Plan, similarPlans } from '../../support/limits.ts'
import { runs } from '../../support/runs.ts'
import { stored } from '../../support/stored.ts'
import { watch } from '../../support/watch.ts'

// Calls of customers who have different plans, at once.

const database = useDatabase()
const KEYS = 4

/** Each plan in turn, so that no two neighbors have the same one. */
function planAt(plans: readonly Plan[], place: number): Limiter {
  return (plans[place % plans.length] as Plan).limiter
}

interface Round {
  readonly advanceMs: number
  /** For each key: the rate, or `'look'`. */
  readonly asks: readonly (number | 'look')[]
  /** By how many plans each key has moved on. */
  readonly change: number
}

const anyRounds = similarPlans.chain((plans) => {
  const { stepMs, rules } = plans[0] as Plan
  const most = Math.max(Math.floor(Math.min(rules.capacity, 1000)), 2)
  const anyAsk = fc.oneof(fc.constantFrom('look' as const, 0, -1, 1, 2), fc.integer({ min: 1, max: most }))
  const anyRound: fc.Arbitrary<Round> = fc.record({
    advanceMs: fc.oneof(fc.constantFrom(0, 1, stepMs - 1, stepMs), fc.integer({ min: 0, max: 2 * stepMs })),
    asks: fc.array(anyAsk, { minLength: KEYS, maxLength: KEYS }),
    change: fc.nat(2),
  })
  return fc.record({ plans: fc.constant(plans), rounds: fc.array(anyRound, { minLength: 1, maxLength: 6 }) })
})

let made = 0

test('each list of several limits has the answers that it has alone', async () => {
  await fc.assert(
    fc.asyncProperty(anyRounds, async ({ plans, rounds }) => {
      const clock = new TestClock()
      const options = { db: database.db, clock: clock.now, cleanupProbability: 0 }
      const [together, alone] = ['together', 'alone'].map((name) => {
        const number = made++
        const first = new Quota({ ...options, limiter: planAt(plans, 0), prefix: `${name} ${number}` })
        const limiter = Ratelimit.fixedWindow(50, '1h')
        return { first, second: new Ratelimit({ ...options, limiter, prefix: `${name} ${number} second` }) }
      }) as [Limits, Limits]
      for (const { advanceMs, asks, change } of rounds) {
        clock.advance(advanceMs)
        const calls = asks.map((ask, place) => async ({ first, second }: Limits) => {
          const [key, limiter, rate] = [
            `key ${place}`,
            planAt(plans, place + change),
            ask === 'look' ? 0 : ask,
          ]
          const { success, results } = await limitAll([
            { ratelimit: first, key, rate, limiter },
            { ratelimit: second, key, rate: 1 },
          ])
          return { success, results }
        })
        const answers = await Promise.all(calls.map((call) => call(together)))
        for (const [place, call] of calls.entries()) expect(answers[place]).toEqual(await call(alone))
      }
    }),
    runs(40),
  )
})

interface Limits {
  readonly first: Quota
  readonly second: Ratelimit
}

test('each estimate with a name has the answer that it has alone', async () => {
  await fc.assert(
    fc.asyncProperty(anyRounds, async ({ plans, rounds }) => {
      const clock = new TestClock()
      const [together, alone] = ['together', 'alone'].map((name) => {
        const prefix = `${name} ${made++}`
        const options = { db: database.db, clock: clock.now, cleanupProbability: 0 }
        return new Quota({ ...options, limiter: planAt(plans, 0), prefix })
      }) as [Quota, Quota]
      for (const [round, { advanceMs, asks, change }] of rounds.entries()) {
        clock.advance(advanceMs)
        const calls = asks.map((ask, place) => {
          const [key, limiter] = [`key ${place}`, planAt(plans, place + change)]
          return { key, id: `${round}`, limiter, rate: typeof ask === 'number' && ask > 0 ? ask : 1 }
        })
        const reserve = async (quota: Quota, { key, ...options }: (typeof calls)[number]) =>
          shown(await quota.reserve(key, { ...options, expires: '1h' }))
        const settle = (quota: Quota, { key, id, limiter }: (typeof calls)[number]) =>
          quota.settle({ key, id }, 1, { limiter })
        const reserved = await Promise.all(calls.map((call) => reserve(together, call)))
        for (const [place, call] of calls.entries())
          expect(reserved[place]).toEqual(await reserve(alone, call))
        const charged = calls.filter((_, place) => reserved[place]?.success)
        const settled = await Promise.all(charged.map((call) => settle(together, call)))
        for (const [place, call] of charged.entries())
          expect(settled[place]).toEqual(await settle(alone, call))
      }
    }),
    runs(20),
  )
})

/** The answer without its functions. */
function shown<T extends object>(answer: T): T {
  const values = Object.entries(answer).filter(([, value]) => typeof value !== 'function')
  return Object.fromEntries(values) as T
}

test('each has the answer that it has alone', async () => {
  await fc.assert(
    fc.asyncProperty(anyRounds, async ({ plans, rounds }) => {
      const clock = new TestClock()
      const limiter = planAt(plans, 0)
      const [together, alone] = ['together', 'alone'].map((name) => {
        const prefix = `${name} ${made++}`
        return new Ratelimit({ db: database.db, limiter, prefix, clock: clock.now, cleanupProbability: 0 })
      }) as [Ratelimit, Ratelimit]
      for (const { advanceMs, asks, change } of rounds) {
        clock.advance(advanceMs)
        const calls = asks.map((rate, place) => (ratelimit: Ratelimit) => {
          const [key, plan] = [`key ${place}`, planAt(plans, place + change)]
          return rate === 'look'
            ? ratelimit.getRemaining(key, { limiter: plan })
            : ratelimit.limit(key, { rate, limiter: plan })
        })
        const answers = await Promise.all(calls.map((call) => call(together)))
        for (const [place, call] of calls.entries()) expect(answers[place]).toEqual(await call(alone))
      }
    }),
    runs(40),
  )
})

test('limits that differ in other numbers have one text, once those have differed', async () => {
  const { db, statements } = watch(database.db)
  const limiter = Ratelimit.tokenBucket(1, '1h', 1)
  const ratelimit = new Ratelimit({ db, limiter, prefix: 'texts', cleanupProbability: 0 })
  const first = (await textOf(Ratelimit.tokenBucket(2, '2h', 3))) as string
  const others = [
    Ratelimit.tokenBucket(1, '1h', 2),
    Ratelimit.tokenBucket(2, '1h', 2),
    Ratelimit.tokenBucket(1, '2h', 2),
  ]
  for (const other of others) expect(await textOf(other)).toBe(first)

  async function textOf(other: Limiter): Promise<string | undefined> {
    const [one, two] = ['customer 1', 'customer 2']
    for (const key of [one, two]) await ratelimit.limit(key)
    statements.length = 0
    await Promise.all([ratelimit.limit(one), ratelimit.limit(two, { limiter: other })])
    expect(statements).toHaveLength(1)
    return statements[0]
  }
})

test('they share statements in a table with columns of the application that have the names of numbers', async () => {
  const limiters = [1, 2].map((tokens) => stored(Ratelimit.tokenBucket(tokens, `${tokens}h`, tokens)))
  const columns = Object.keys((limiters[0] as StoredLimiter).params).map((name) => `column "${name}"`)
  const alter = (change: (column: string) => string) =>
    database.script(`alter table rate_limit_ephemeral ${columns.map(change).join()}`)
  const prefix = 'own columns'
  const ratelimit = new Ratelimit({
    db: database.db,
    limiter: limiters[0] as Limiter,
    prefix,
    cleanupProbability: 0,
  })
  const check = async () => {
    const answers = await Promise.all(limiters.map((limiter, key) => ratelimit.limit(`${key}`, { limiter })))
    return answers.map(({ remaining, success }) => [remaining, success])
  }
  await alter((column) => `add ${column} float8`)
  try {
    expect(await check()).toEqual([
      [0, true],
      [1, true],
    ])
    expect(await check()).toEqual([
      [0, false],
      [0, true],
    ])
  } finally {
    await alter((column) => `drop ${column}`)
  }
})

test.each<[string, readonly Limiter[]]>([
  ['fixed windows', [1, 2, 3].map((tokens) => Ratelimit.fixedWindow(tokens, `${tokens}h`))],
  ['sliding windows', [1, 2, 3].map((tokens) => Ratelimit.slidingWindow(tokens, `${tokens}h`))],
  ['buckets', [1, 2, 3].map((tokens) => Ratelimit.tokenBucket(tokens, `${tokens}h`, tokens))],
  ['gcra', [1, 2, 3].map((burst) => Ratelimit.gcra(1, '1h', { burst }))],
  ['months and days', [calendarWindow(1, 'month'), calendarWindow(2, 'day'), calendarWindow(3, 'month')]],
  ['lockouts', [1, 2, 3].map((failures) => lockout(failures, `${failures}h`, { block: '1h' }))],
])('calls of different %s share statements', async (name, limiters) => {
  const { db, statements } = watch(database.db)
  const limiter = limiters[0] as Limiter
  const ratelimit = new Ratelimit({ db, limiter, prefix: name, cleanupProbability: 0 })
  const customers = limiters.map((plan, place) => ({ key: `customer ${place}`, plan, limit: place + 1 }))
  for (const left of [1, 0]) {
    statements.length = 0
    const answers = await Promise.all(
      customers.map(({ key, plan, limit }) =>
        ratelimit.limit(key, { limiter: plan, rate: left === 1 ? limit : 1 }),
      ),
    )
    expect(answers.map(({ success }) => success)).toEqual(customers.map(() => left === 1))
    expect(answers.map(({ limit }) => limit)).toEqual([1, 2, 3])
    // The first calls also make the rows.
    expect(statements).toHaveLength(left + 1)
  }
  statements.length = 0
  const looks = customers.map(({ key, plan }) => ratelimit.getRemaining(key, { limiter: plan }))
  expect((await Promise.all(looks)).map(({ limit }) => limit)).toEqual([1, 2, 3])
  expect(statements).toHaveLength(1)

  const each = new Ratelimit({
    db,
    limiter: Ratelimit.fixedWindow(5, '1h'),
    prefix: `${name} each`,
    cleanupProbability: 0,
  })
  for (const { key } of customers) await each.limit(key)
  statements.length = 0
  const lists = customers.map(({ key, plan }) =>
    limitAll([
      { ratelimit: each, key },
      { ratelimit, key, limiter: plan },
    ]),
  )
  const answers = await Promise.all(lists)
  expect(answers.map(({ results }) => results[1]?.limit)).toEqual([1, 2, 3])
  expect(statements).toHaveLength(1)
})
