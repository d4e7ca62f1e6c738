import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { range } from '../../support/range.ts'
import { deadlocks } from '../../support/statistics.ts'

// Credits that end next to other limits: exact, whoever else takes from them at the same time.

const database = useDatabase()

function limitersOn(name: string, month: number, processes: number) {
  const on = (db: typeof database.db) => ({
    monthly: new Ratelimit({
      db,
      limiter: Ratelimit.fixedWindow(month, '30d'),
      prefix: `${name} month`,
      timeout: false,
    }),
    credits: new Credits({
      db,
      dated: true,
      prefix: `${name} credits`,
      durable: true,
      timeout: false,
    }),
  })
  const pools = range(processes).map(() => database.connect(1).db)
  return { own: on(database.db), pools, others: pools.map(on) }
}

type Limiters = ReturnType<typeof limitersOn>['own']

function sourcesOf({ monthly, credits }: Limiters) {
  return [
    { ratelimit: monthly, key: 'org' },
    { ratelimit: credits, key: 'org' },
  ]
}

test('32 callers spend a month and three grants exactly, whatever is first', async () => {
  const { own, pools, others } = limitersOn('exact', 150, 32)
  await own.credits.grant('org', 97, { id: 'first', expires: '1d' })
  await own.credits.grant('org', 150, { id: 'second', expires: '2d' })
  await own.credits.grant('org', 211, { id: 'third' })
  const taken = await Promise.all(
    others.map(async (limiters, process) => {
      const sources = sourcesOf(limiters)
      const [month, credits] = [0, 0]
      const paid = [month, credits]
      for (const turn of range(20)) {
        const isFirst = (process + turn) % 2 === 0
        const rate = 1 + ((process + turn) % 3)
        const { granted } = await spend(isFirst ? sources : sources.toReversed(), { rate })
        const inOrder = isFirst ? granted : granted.toReversed()
        for (const [place, each] of inOrder.entries()) paid[place] = (paid[place] ?? 0) + each
      }
      return paid
    }),
  )
  const sum = (place: number) => taken.reduce((all, paid) => all + (paid[place] ?? 0), 0)
  expect([sum(0), sum(1)]).toEqual([150, 458])
  expect((await own.monthly.getRemaining('org')).used).toBe(150)
  expect((await own.credits.grants('org')).map(({ left }) => left)).toEqual([0, 0, 0])
  expect(await deadlocks(database, pools)).toBe(0)
})

test('spends, estimates, costs, releases, single calls, grants and transactions at once add up', async () => {
  const { own, pools, others } = limitersOn('all', 400, 24)
  for (const i of range(4)) await own.credits.grant('org', 60, { id: `start ${i}`, priority: i })
  const used = { month: 0, credits: 0 }
  await Promise.all(
    others.map(async (limiters, process) => {
      const sources = sourcesOf(limiters)
      const count = ([month = 0, credits = 0]: readonly number[]) => {
        used.month += month
        used.credits += credits
      }
      for (const turn of range(18)) {
        const what = (process + turn) % 10
        if (what === 0) await limiters.credits.grant('org', 20, { id: `${process} ${turn}`, priority: turn })
        else if (what === 1) count([0, (await limiters.credits.limit('org', { rate: 3 })).success ? 3 : 0])
        else if (what === 2) count([(await limiters.monthly.limit('org', { rate: 3 })).success ? 3 : 0])
        else if (what === 3) count((await spend(sources, { rate: 30, atLeast: 1 })).granted)
        else if (what === 4) {
          const spent = await spend(sources.toReversed(), { rate: 12 })
          count((await spent.release()).granted.toReversed())
        } else if (what === 5) {
          const spent = await spend(sources, { rate: 9 })
          if (spent.success) count((await spent.commit(turn * 2)).granted)
        } else if (what === 6) {
          const [monthly, credits] = sources
          const requests = [
            { ...credits, rate: 4 },
            { ...monthly, rate: 2 },
          ] as Parameters<typeof limitAll>[0]
          if ((await limitAll(requests)).success) count([2, 4])
        } else if (what === 7) {
          const db = pools[process] as (typeof pools)[number]
          const { success } = await db.transaction((tx) => limiters.credits.limit('org', { rate: 5, tx }))
          if (success) count([0, 5])
        } else if (what === 8) {
          const db = pools[process] as (typeof pools)[number]
          const { granted } = await db.transaction((tx) => spend(sources, { rate: 2, tx }))
          count(granted)
        } else {
          const requests = sources.map((source, place) => ({ ...source, rate: 5 + place }))
          const reserved = await reserveAll(requests as Parameters<typeof reserveAll>[0])
          if (!reserved.success) continue
          const costs = [turn, 15 - turn].map((cost) => Math.max(cost, 0))
          await reserved.commit(costs)
          count(costs)
        }
      }
    }),
  )
  const rows = await own.credits.grants('org')
  const usage = await own.credits.getRemaining('org')
  const ofGrants = rows.reduce((sum, row) => sum + row.used, 0)
  expect((await own.monthly.getRemaining('org')).used).toBe(used.month)
  expect(usage.used).toBe(used.credits)
  expect(usage.remaining).toBe(Math.max(usage.limit - usage.used, 0))
  expect(ofGrants).toBeLessThanOrEqual(usage.used)
  for (const row of rows) expect(row.used).toBeLessThanOrEqual(row.amount)
  expect(await deadlocks(database, pools)).toBe(0)
})

test('a grant that commits while spends wait is not missed', async () => {
  const { own, others } = limitersOn('waits', 4, 8)
  await own.credits.grant('org', 8, { id: 'a' })
  await own.monthly.limit('org', { rate: 4 })
  const waiting = await database.db.transaction(async (tx) => {
    await own.credits.limit('org', { rate: 8, tx })
    const calls = Promise.all(others.map((each) => spend(sourcesOf(each), { rate: 1 })))
    await untilWaiting(database, 8)
    await own.credits.grant('org', 8, { id: 'b', tx })
    return { calls }
  })
  expect((await waiting.calls).map(({ success }) => success)).toEqual(new Array(8).fill(true))
  expect((await own.credits.getRemaining('org')).remaining).toBe(0)
})
