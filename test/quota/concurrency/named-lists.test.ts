import { beforeAll, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import {
  Quota,
  reserveAll,
  type SettledSpending,
  settle,
  settleExpired,
  spend,
} from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { range } from '../../support/range.ts'
import { times } from '../../support/runs.ts'
import { deadlocks } from '../../support/statistics.ts'

// Estimates over several limits with a name, by many connections at once.

const database = useDatabase()

let dbs: readonly Db[]
beforeAll(() => {
  dbs = range(12).map(() => database.connect(2).db)
})

/** A month and credits of one customer, in as many processes as there are databases. */
async function processes(name: string) {
  const clock = new TestClock()
  const common = { clock: clock.now, cleanupProbability: 0, durable: true }
  const all = dbs.map((db) => {
    // The names sort differently from the order of the requests.
    const month = new Quota({
      timeout: false,
      ...common,
      db,
      limiter: Ratelimit.fixedWindow(100, '1h'),
      prefix: `z ${name}`,
    })
    const credits = new Credits({
      timeout: false,
      ...common,
      db,
      prefix: `a ${name}`,
    })
    const of = (key: string) => [
      { ratelimit: month, key },
      { ratelimit: credits, key },
    ]
    return { db, month, credits, of }
  })
  const [{ month, credits }] = all as [(typeof all)[number]]
  const used = async (key: string) =>
    (await month.getRemaining(key)).used + (await credits.getRemaining(key)).used
  return { clock, all, credits, used }
}

test('all processes take one name at once, and all settle it: one each', async () => {
  const { all, credits, used } = await processes('one name')
  await credits.grant('org', 1000)
  const named = { id: 'job', expires: '1h' } as const
  const spent = await Promise.all(all.map(({ of }) => spend(of('org'), { rate: 300, ...named })))
  expect(spent.filter((answer) => !('repeated' in answer))).toHaveLength(1)
  expect(await used('org')).toBe(300)
  for (const actual of [120, 450]) {
    const settled = await Promise.allSettled(all.map(({ of }) => settle(of('org'), 'job', { actual })))
    const answers = settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
    expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(actual === 120 ? 1 : 0)
    expect(answers).toHaveLength(actual === 120 ? all.length : 0)
    expect(await used('org')).toBe(120)
  }
})

test('spend, settle and settleExpired race: each estimate ends once, nothing is lost, and nothing deadlocks', async () => {
  const { clock, all, credits, used } = await processes('race')
  const keys = ['org 1', 'org 2']
  for (const key of keys) await credits.grant(key, 100_000)
  const names = range(times(48)).map((i) => ({ key: keys[i % 2] as string, id: `job ${i}` }))
  const first = all[0] as (typeof all)[number]
  for (const { key, id } of names) await spend(first.of(key), { rate: 30, id, expires: '1m' })
  clock.advance(60_000)
  const costs = new Map<string, number>()
  await Promise.all(
    all.map(async ({ db, month, credits: own, of }, place) => {
      for (const i of range(names.length)) {
        const { key, id } = names[(i * 7 + place) % names.length] as (typeof names)[number]
        const actual = (i * 17) % 70
        if (place < 2) {
          const ratelimit = place === 0 ? month : own
          await db.transaction((tx) => settleExpired(ratelimit, { tx, as: 'release', limit: 1 }))
        } else if (place < 4) {
          await limitAll(of(key).map((each) => ({ ...each, rate: 0 })))
          await spend(of(key), { rate: 1, id: `more ${place} ${i}`, expires: '1h' })
          await settle(of(key), `more ${place} ${i}`, { actual: 0 })
        } else {
          const settled = await settle(of(key), id, { actual }).catch(lateness)
          if (settled && !settled.repeated) costs.set(id, actual)
        }
      }
    }),
  )
  for (const ratelimit of [first.month, first.credits]) {
    await first.db.transaction((tx) => settleExpired(ratelimit, { tx, as: 'release' }))
  }
  const kept = [...costs.values()].reduce((sum, each) => sum + each, 0)
  expect(costs.size).toBeGreaterThan(0)
  expect((await used('org 1')) + (await used('org 2'))).toBe(kept)
  expect(await deadlocks(database, [...dbs])).toBe(0)
})

test('with grace, a settlement locks the limits in the order of every list, and then the estimates', async () => {
  const limiter = calendarWindow(100, 'month')
  const processOn = (db: Db) => {
    const limitOf = (prefix: string) =>
      new Quota({ timeout: false, db, limiter, prefix, keepEnded: true, grace: '1h', durable: true })
    return { db, first: limitOf('a in grace'), last: limitOf('b in grace') }
  }
  const [one, other] = (dbs as [Db, Db]).map(processOn) as [
    ReturnType<typeof processOn>,
    ReturnType<typeof processOn>,
  ]
  const requestsOf = ({ first, last }: typeof one) => [
    { ratelimit: first, key: 'org' },
    { ratelimit: last, key: 'org' },
  ]
  const named = { id: 'job', expires: '1h' } as const
  await reserveAll(requestsOf(one), named)
  let settling: Promise<unknown> | undefined
  await one.db.transaction(async (tx) => {
    await one.first.limit('org', { tx })
    settling = settle(requestsOf(other).toReversed(), 'job', { actual: [3, 3] })
    await untilWaiting(database)
    // If the settlement held the other limit or an estimate, the two would wait for each other.
    await one.last.limit('org', { tx })
    expect(await reserveAll(requestsOf(one), { ...named, tx })).toMatchObject({ success: true })
  })
  expect(await settling).toMatchObject({ results: [{ remaining: 96 }, { remaining: 96 }] })
  expect(await deadlocks(database, [...dbs])).toBe(0)
})

/** Ignores that another one was faster. */
function lateness(error: unknown): SettledSpending | undefined {
  if (error instanceof RatelimitError && error.code === 'ALREADY_SETTLED') return undefined
  throw error
}

test('of a list that finds one of its names in use, nothing stays', async () => {
  const [db, other] = dbs as [Db, Db]
  const limitAt = (db: Db, prefix: string) =>
    new Quota({
      durable: false,
      db,
      limiter: Ratelimit.fixedWindow(100, '1h'),
      prefix,
      cleanupProbability: 0,
    })
  const limits = ['in use a', 'in use z'].map((prefix) => limitAt(db, prefix)) as [Quota, Quota]
  for (const ratelimit of limits) await ratelimit.limit('org', { rate: 20 })
  const estimates = limits.map((ratelimit) => ({ ratelimit, key: 'org', rate: 5 }))
  const named = { id: 'job', expires: '1h' } as const
  let both: Promise<unknown> | undefined
  await other.transaction(async (tx) => {
    await limitAt(other, 'in use z').reserve('org', { rate: 7, ...named, tx })
    both = reserveAll(estimates, named).catch(({ code }: RatelimitError) => code)
    // Statements that do not wait give up after three milliseconds.
    await vi.waitUntil(
      async () =>
        (
          await database.rows(
            `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
            and clock_timestamp() - query_start > interval '100 ms'`,
          )
        ).length > 0,
      PATIENTLY,
    )
  })
  expect(await both).toBe('OTHER_RESERVATION')
  const [free] = limits
  await expect(free.settle({ key: 'org', id: 'job' }, 0)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
  expect(await free.getRemaining('org')).toMatchObject({ used: 20 })
})
