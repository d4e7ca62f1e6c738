import { beforeAll, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type LimitResult, limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import {
  openReservations,
  Quota,
  settle,
  settleExpired,
  spend,
  type Threshold,
} from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { range } from '../../support/range.ts'
import { times } from '../../support/runs.ts'
import { deadlocks } from '../../support/statistics.ts'
import { undone } from '../../support/undone.ts'

// Estimates with a name on credits that end, by many connections at once.

const database = useDatabase()
const NAMED = { id: 'job', expires: '1h' } as const

let dbs: readonly Db[]
beforeAll(() => {
  dbs = range(12).map(() => database.connect(2).db)
})

/** A month and credits of customers, in as many processes as there are databases. */
function processes(name: string, thresholds: readonly Threshold[] = []) {
  const clock = new TestClock()
  const common = { clock: clock.now, cleanupProbability: 0, durable: true }
  const all = dbs.map((db) => {
    // The names sort differently from the order of the requests.
    const month = new Quota({
      ...common,
      db,
      limiter: Ratelimit.fixedWindow(100, '1d'),
      prefix: `z ${name}`,
    })
    const credits = new Credits({
      ...{ ...common, db, dated: true, prefix: `a ${name}`, thresholds },
    })
    const of = (key: string) =>
      [
        { ratelimit: month, key },
        { ratelimit: credits, key },
      ] as const
    return { db, month, credits, of }
  })
  const [first] = all as [(typeof all)[number]]
  /** What the rows of the limits say was used. Each grant has used between 0 and what was granted. */
  const used = async (key: string) => {
    const grants = await first.credits.grants(key)
    expect(grants.filter((each) => each.used < 0 || each.used > each.amount)).toEqual([])
    return (await first.month.getRemaining(key)).used + (await first.credits.getRemaining(key)).used
  }
  const grant = async (key: string, amounts: readonly number[]) => {
    for (const [i, amount] of amounts.entries()) {
      // The order of paying is another one than the order of the keys.
      await first.credits.grant(key, amount, { id: `grant ${9 - i}`, priority: (i * 37) % 100 })
    }
  }
  return { clock, all, first, used, grant }
}

/** How the calls ended: the answers, and the codes of those that were refused. */
async function endsOf<T>(calls: readonly Promise<T>[]): Promise<{ answers: T[]; codes: unknown[] }> {
  const settled = await Promise.allSettled(calls)
  const answers = settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
  const codes = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason.code] : []))
  return { answers, codes }
}

test('all processes take one name at once, and all settle it: one each', async () => {
  const { all, grant, used } = processes('one name')
  await grant('org', [100, 100, 100])
  const taken = await Promise.all(
    all.map(({ credits }, i) => credits.reserve('org', { rate: 150 + i, ...NAMED })),
  )
  const charged = taken.filter((answer) => !('repeated' in answer))
  expect(charged).toHaveLength(1)
  expect(await used('org')).toBe(300 - (charged[0]?.remaining ?? 0))
  for (const [actual, firsts] of [
    [120, 1],
    [250, 0],
  ] as const) {
    const { answers, codes } = await endsOf(
      all.map(({ credits }) => credits.settle({ key: 'org', id: 'job' }, actual)),
    )
    expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(firsts)
    expect(codes).toEqual(firsts === 1 ? [] : all.map(() => 'ALREADY_SETTLED'))
    expect(await used('org')).toBe(120)
  }
})

test('all processes settle one name with costs of their own: one of them counts', async () => {
  const { all, first, grant, used } = processes('costs')
  await grant('org', [100, 100, 100])
  for (const job of range(times(6))) {
    const before = await used('org')
    const id = `job ${job}`
    await spend(first.of('org'), { rate: 40, id, expires: '1h' })
    const { answers, codes } = await endsOf(
      all.map(({ of }, i) => settle(of('org'), id, { actual: 20 + 5 * i })),
    )
    expect(codes).toEqual(range(all.length - 1).map(() => 'ALREADY_SETTLED'))
    const [granted = []] = answers.map((each) => each.granted)
    expect(await used('org')).toBe(before + granted.reduce((sum, each) => sum + each, 0))
  }
})

test('names of one key at once never take more than its grants have', async () => {
  const { all, grant, used, first } = processes('sums')
  await grant('org', [70, 50, 30])
  const taken = await Promise.all(
    range(48).map((i) => all[i % 12]?.credits.reserve('org', { rate: 7, id: `job ${i}`, expires: '1h' })),
  )
  const charged = taken.filter((each) => each?.success)
  expect(charged).toHaveLength(21)
  expect(await used('org')).toBe(147)
  await Promise.all(charged.map((each) => each?.success && each.release()))
  expect(await used('org')).toBe(0)
  expect(await openReservations({ db: first.db, prefix: 'a sums', durable: true })).toEqual([])
})

test('each threshold of the credits is crossed once, by lists, names and settlements at once', async () => {
  const thresholds = [0.5, { left: 20 }]
  const { all, grant, used } = processes('low', thresholds)
  await grant('org', [70, 50, 30])
  const answers = await Promise.all(
    range(36).map(async (i): Promise<readonly LimitResult[]> => {
      const { credits, of } = all[i % 12] as (typeof all)[number]
      const requests = of('org').slice(1) as [ReturnType<typeof of>[1]]
      const named = { id: `job ${i}`, expires: '1h' } as const
      if (i % 3 === 0) return (await limitAll([{ ...requests[0], rate: 4 }])).results
      if (i % 3 === 1) return (await spend(requests, { rate: 4, ...named })).results
      const reserved = await credits.reserve('org', { rate: 1, ...named })
      return [reserved, await credits.settle({ key: 'org', id: named.id }, 4)]
    }),
  )
  expect(await used('org')).toBe(144)
  const crossed = answers.flat().flatMap((each) => (each.success ? (each.crossed ?? []) : []))
  expect(crossed).toHaveLength(2)
  expect(new Set(crossed)).toEqual(new Set(thresholds))
})

test('estimates, costs, grants, calls and settleExpired race: nothing is lost, and nothing deadlocks', async () => {
  const { clock, all, first, grant, used } = processes('race')
  const keys = ['org 1', 'org 2']
  for (const key of keys) await grant(key, [10_000, 20_000, 30_000])
  const names = range(times(48)).map((i) => ({
    key: keys[i % 2] as string,
    id: `job ${i}`,
    isSpent: i % 4 < 2,
  }))
  for (const { key, id, isSpent } of names) {
    const named = { rate: 30, id, expires: '1m' } as const
    if (isSpent) await spend(first.of(key), named)
    else await first.credits.reserve(key, named)
  }
  clock.advance(60_000)
  const costs = new Map<string, number>()
  await Promise.all(
    all.map(async ({ db, month, credits, of }, place) => {
      for (const i of range(names.length)) {
        const { key, id, isSpent } = names[(i * 7 + place) % names.length] as (typeof names)[number]
        const actual = (i * 17) % 70
        if (place < 2) {
          const options = { as: 'release', limit: 1 } as const
          await db.transaction((tx) =>
            place === 0
              ? settleExpired(month, { tx, ...options })
              : settleExpired(credits, { tx, ...options }),
          )
        } else if (place < 4) {
          await credits.limit(key, { rate: 3, once: { id: `${place} ${i}`, for: '1d' } })
          await credits.limit(key, { rate: -3 })
          await spend(of(key), { rate: 5, id: `more ${place} ${i}`, expires: '1h' })
          await settle(of(key), `more ${place} ${i}`, { actual: 0 })
        } else {
          const settled = await (isSpent
            ? settle(of(key), id, { actual })
            : credits.settle({ key, id }, actual)
          ).catch(lateness)
          if (settled && !settled.repeated) costs.set(id, actual)
        }
      }
    }),
  )
  const end = { as: 'release' } as const
  await first.db.transaction((tx) => settleExpired(first.month, { tx, ...end }))
  await first.db.transaction((tx) => settleExpired(first.credits, { tx, ...end }))
  const kept = [...costs.values()].reduce((sum, each) => sum + each, 0)
  expect(costs.size).toBeGreaterThan(0)
  expect((await used('org 1')) + (await used('org 2'))).toBe(kept)
  expect(await openReservations({ db: first.db, prefix: 'a race', durable: true })).toEqual([])
  expect(await deadlocks(database, [...dbs])).toBe(0)
})

function lateness(error: unknown): undefined {
  const isLate = error instanceof RatelimitError && error.code === 'ALREADY_SETTLED'
  if (!isLate) throw error
}

test('a denial writes nothing, and a rollback leaves neither the estimate nor its shares', async () => {
  const { first, grant, used, all } = processes('undone')
  await grant('org', [10, 10, 10])
  const [, second] = all as [(typeof all)[number], (typeof all)[number]]
  expect(await first.credits.reserve('org', { rate: 31, ...NAMED })).toMatchObject({ success: false })
  await undone(first.db, async (tx) => {
    await first.credits.reserve('org', { rate: 25, tx, ...NAMED })
    expect(await used('org')).toBe(0)
  })
  expect(await used('org')).toBe(0)
  const again = await second.credits.reserve('org', { rate: 15, ...NAMED })
  expect(again).not.toHaveProperty('repeated')
  await first.db.transaction((tx) => first.credits.settle({ key: 'org', id: 'job' }, 12, { tx }))
  expect(await used('org')).toBe(12)
})
