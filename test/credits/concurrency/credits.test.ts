import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { range } from '../../support/range.ts'
import { times } from '../../support/runs.ts'
import { deadlocks } from '../../support/statistics.ts'

// Grants are taken from exactly, whoever else takes from them at the same time.

const database = useDatabase()

function creditsOn(prefix: string, processes: number, dryRun = false) {
  const options = { dated: true, prefix, durable: true, timeout: false, dryRun } as const
  const pools = range(processes).map(() => database.connect(1).db)
  const own = new Credits({ db: database.db, ...options })
  return { own, pools, others: pools.map((db) => new Credits({ db, ...options })) }
}

test('32 callers use up three grants of different ends exactly, in their order', async () => {
  const { own, pools, others } = creditsOn('three', 32)
  const grants = [
    { id: 'third', amount: 211 },
    { id: 'first', amount: 97, expires: '1d' },
    { id: 'second', amount: 150, expires: '2d' },
  ] as const
  for (const { amount, ...terms } of grants) await own.grant('org', amount, terms)
  const taken = await Promise.all(
    others.map(async (credits, process) => {
      let sum = 0
      for (const turn of range(Math.max(times(20), 12))) {
        const rate = 1 + ((process + turn) % 3)
        const { success } = await credits.limit('org', { rate })
        if (!success) continue
        sum += rate
        const [first, second, third] = await own.grants('org')
        // Nothing is taken from a grant as long as one before it has three.
        if (second && second.used > 0) expect(first?.left).toBeLessThan(3)
        if (third && third.used > 0) expect((first?.left ?? 0) + (second?.left ?? 0)).toBeLessThan(3)
      }
      return sum
    }),
  )
  const total = taken.reduce((sum, each) => sum + each, 0)
  const rows = await own.grants('org')
  expect(rows.map(({ id }) => id)).toEqual(['first', 'second', 'third'])
  expect(rows.reduce((sum, { used }) => sum + used, 0)).toBe(total)
  // The last units may be too few for a call, but one call of each process asked for one unit near the end.
  expect(total).toBe(458)
  expect((await own.getRemaining('org')).remaining).toBe(0)
  expect(await deadlocks(database, pools)).toBe(0)
})

test('a dry run by 16 connections charges what fits, never more, and lets the rest pass', async () => {
  const { own, pools, others } = creditsOn('dry', 16, true)
  await own.grant('org', 60, { id: 'first', expires: '1d' })
  await own.grant('org', 41, { id: 'second' })
  const charged = await Promise.all(
    others.map(async (credits, process) => {
      let sum = 0
      for (const turn of range(10)) {
        const rate = 1 + ((process + turn) % 3)
        const once = { id: `${process} ${turn}`, for: '1d' } as const
        const options = turn % 2 === 0 ? { rate } : { rate, once }
        const answer = await credits.limit('org', options)
        expect(answer).toMatchObject({ success: true })
        if (answer.success && !answer.wouldDeny) sum += rate
      }
      return sum
    }),
  )
  const { used } = await own.getRemaining('org')
  expect(used).toBe(charged.reduce((sum, each) => sum + each, 0))
  // A call for one unit is made near the end.
  expect(used).toBe(101)
  expect((await own.grants('org')).map(({ left }) => left)).toEqual([0, 0])
  expect(await deadlocks(database, pools)).toBe(0)
})

test('the same grant by 24 connections is granted once', async () => {
  const { own, others } = creditsOn('payment', 24)
  const answers = await Promise.all(
    others.flatMap((credits) => [1, 2].map(() => credits.grant('org', 10, { id: 'payment', expires: '1d' }))),
  )
  expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1)
  expect(await own.getRemaining('org')).toMatchObject({ limit: 10, remaining: 10 })
})

test('takes, refunds, settlements, grants and voids at once add up', async () => {
  const { own, pools, others } = creditsOn('all', Math.max(times(24), 8))
  for (const i of range(4)) await own.grant('org', 100, { id: `start ${i}`, priority: i })
  let [used, lost] = [0, 0]
  await Promise.all(
    others.map(async (credits, process) => {
      for (const turn of range(12)) {
        const what = (process + turn) % 6
        if (what === 0) await credits.grant('org', 20, { id: `grant ${process} ${turn}`, priority: turn })
        else if (what === 1) {
          const left = await credits.voidGrant('org', `grant ${process} ${turn - 1}`)
          lost += left
        } else if (what === 2) {
          const reserved = await credits.reserve('org', { rate: 9 })
          if (!reserved.success) continue
          const { returned = 0 } = await reserved.commit(turn)
          used += turn > 9 ? turn : 9 - returned
        } else if (what === 3) {
          if ((await credits.limit('org', { rate: 30 })).success) used += 30
        } else if (what === 4) {
          const answer = await credits.limit('org', { rate: -5 })
          if (answer.success) used -= answer.returned ?? 0
        } else if ((await credits.limit('org', { rate: 7, force: true })).success) used += 7
      }
    }),
  )
  const rows = await own.grants('org')
  const usage = await own.getRemaining('org')
  const sum = (of: (row: (typeof rows)[number]) => number) => rows.reduce((all, row) => all + of(row), 0)
  const debt = usage.used - sum((row) => (row.ended ? 0 : row.used))
  // Repayments of the debt move it to the grants that pay it, so the sum stays.
  expect(sum((row) => row.used) + debt).toBe(used)
  expect(sum((row) => (row.ended ? row.amount - row.used : 0))).toBe(lost)
  expect(usage.remaining).toBe(Math.max(sum((row) => row.left) - debt, 0))
  for (const row of rows) expect(row.used).toBeLessThanOrEqual(row.amount)
  expect(await deadlocks(database, pools)).toBe(0)
})

test('calls that need more grants than a statement has rows take all that there is, and no more', async () => {
  const { own, pools, others } = creditsOn('many grants', Math.max(times(6), 3))
  await Promise.all(range(150).map((place) => own.grant('org', 2, { id: `grant ${place}` })))
  const once = (id: number) => ({ id: `call ${id}`, for: '1d' }) as const
  const granted = await Promise.all(
    others.map(async (credits, process) => {
      let sum = 0
      // 60 grants and more for one call, next to calls on one row each.
      for (const [turn, rate] of [120, 1, 31, 130].entries()) {
        const { success } = await credits.limit('org', { rate, once: once(process * 10 + turn) })
        if (success) sum += rate
        if (turn !== 2) continue
        const refund = await credits.limit('org', { rate: -1 })
        if (refund.success) sum -= refund.returned ?? 0
      }
      return sum
    }),
  )
  const used = granted.reduce((sum, each) => sum + each, 0)
  const { remaining } = await own.getRemaining('org')
  expect(used + remaining).toBe(300)
  if (remaining > 0) expect(await own.limit('org', { rate: remaining })).toMatchObject({ success: true })
  const rows = await own.grants('org')
  expect(rows.every((each) => each.used === 2)).toBe(true)
  expect(await deadlocks(database, pools)).toBe(0)
})

test('with rollbacks in between, one committed call says that little is left, once after each grant', async () => {
  const [undo, LOW] = [new Error('undo'), { left: 40 }]
  const pools = range(12).map(() => database.connect(1).db)
  const common = { prefix: 'low', durable: true, timeout: false } as const
  const options = { ...common, dated: true, thresholds: [LOW] } as const
  const own = new Credits({ db: database.db, ...options })
  for (const round of range(times(3))) {
    // Two grants that both pay for some calls.
    for (const part of [1, 2]) await own.grant('org', 60, { id: `${round} ${part}`, priority: part })
    const told = await Promise.all(
      pools.map(async (db, process) => {
        const credits = new Credits({ db, ...options })
        let times = 0
        for (const turn of range(8)) {
          const isLost = (process + turn) % 3 === 0
          const committed = await db
            .transaction(async (tx) => {
              const answer = await credits.limit('org', { rate: 2 + (turn % 3), tx })
              if (isLost) throw undo
              return answer.success && answer.crossed?.includes(LOW)
            })
            .catch((error) => {
              if (error !== undo) throw error
              return false
            })
          if (committed) times++
        }
        return times
      }),
    )
    expect(told.reduce((sum, times) => sum + times, 0)).toBe(1)
    const { remaining } = await own.getRemaining('org')
    expect(remaining).toBeLessThan(40)
  }
})

test('a grant that commits while calls wait is not missed', async () => {
  const { own, others } = creditsOn('waits', 8)
  await own.grant('org', 8, { id: 'a' })
  const waiting = await database.db.transaction(async (tx) => {
    await own.limit('org', { rate: 8, tx })
    const calls = Promise.all(others.map((credits) => credits.limit('org')))
    await untilWaiting(database, 8)
    await own.grant('org', 8, { id: 'b', tx })
    return { calls }
  })
  expect((await waiting.calls).map(({ success }) => success)).toEqual(new Array(8).fill(true))
  expect((await own.getRemaining('org')).remaining).toBe(0)
})

test('with atLeast, a call that waits takes what the others leave, if that is enough', async () => {
  const { own } = creditsOn('least', 1)
  await own.grant('org', 10, { id: 'a' })
  const waiting = await database.db.transaction(async (tx) => {
    await own.limit('org', { rate: 4, tx })
    const calls = Promise.all([
      own.limit('org', { rate: 8, atLeast: 7 }),
      own.limit('org', { rate: 30, atLeast: 2 }),
    ])
    await untilWaiting(database)
    return { calls }
  })
  const [more, less] = await waiting.calls
  expect(more).toMatchObject({ success: false })
  expect(less).toMatchObject({ success: true, granted: 6, remaining: 0 })
})

test('calls of many keys at once share statements, also those that pay a debt or make one', async () => {
  const credits = new Credits({
    ...{ db: database.db, dated: true, prefix: 'keys', durable: true },
    cleanupProbability: 0,
  })
  const keys = range(60).map((i) => `key ${i}`)
  const each = <T>(work: (key: string) => Promise<T>) => Promise.all(keys.map(work))
  await each((key) => credits.grant(key, 10, { id: 'a' }))
  await each((key) => credits.limit(key, { rate: 13, force: true }))
  await each((key) => credits.grant(key, 10, { id: 'b' }))
  expect((await each((key) => credits.limit(key, { rate: 8 }))).filter(({ success }) => success)).toEqual([])
  const taken = await each((key) => credits.limit(key, { rate: 2 }))
  expect(new Set(taken.map(({ remaining }) => remaining))).toEqual(new Set([5]))
  const rest = await each(async (key) => (await credits.grants(key)).map(({ id, left }) => `${id} ${left}`))
  expect(rest).toEqual(keys.map(() => ['a 0', 'b 5']))
  await each((key) => credits.limit(key, { rate: 9, force: true }))
  const looks = await each((key) => credits.getRemaining(key))
  expect(looks.map(({ used, remaining }) => [used, remaining])).toEqual(keys.map(() => [24, 0]))
})
