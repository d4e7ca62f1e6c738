import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import type { EndedPeriod } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { holdRows, untilWaiting } from '../../support/locks.ts'

const database = useDatabase()

test('calls and changes of the plan at once: each unit is in one period', async () => {
  const clock = new TestClock(Date.UTC(2026, 2, 15))
  const plans = [calendarWindow(100_000, 'month'), calendarWindow(100_000, 'year')] as const
  const quotas = Array.from({ length: 8 }, () => {
    const { db } = database.connect(1)
    const config = { db, limiter: plans[0], prefix: 'changes', clock: clock.now } as const
    return new Quota({ durable: false, timeout: false, ...config, keepEnded: true })
  })
  const ended: EndedPeriod[] = []
  let used = 0
  await Promise.all(
    quotas.map(async (quota, process) => {
      for (let i = 0; i < 40; i++) {
        const [from, to] = i % 2 === 0 ? plans : [plans[1], plans[0]]
        // The first call, and the first change, also race for a row that does not exist.
        if (process === 0 || (process === 1 && i < 3)) {
          const period = await quota.changePlan('key', { from, to })
          if (period) ended.push(period)
          continue
        }
        const answer = await quota.limit('key', { rate: 1 + (i % 3), limiter: to })
        if (answer.success) used += 1 + (i % 3)
        if (answer.success && answer.ended) ended.push(answer.ended)
        clock.advance(1)
      }
    }),
  )
  const [quota] = quotas as [Quota]
  const left = await quota.getRemaining('key', { limiter: plans[1] })
  expect(ended.reduce((sum, period) => sum + period.used, left.used)).toBe(used)
  expect(ended.length).toBeGreaterThan(5)
})

test('the period ends when the row is free, so it holds all that was charged before', async () => {
  const [month, year] = [calendarWindow(100, 'month'), calendarWindow(100, 'year')]
  const { db } = database.connect(1)
  const quota = new Quota({
    durable: false,
    timeout: false,
    db,
    limiter: month,
    prefix: 'held',
    keepEnded: true,
  })
  await quota.limit('key')
  const holder = await holdRows(database, 'held')
  const changed = quota.changePlan('key', { to: year })
  await untilWaiting(database)
  await holder.query('select pg_sleep(0.02)')
  const { rows } = await holder.query('select extract(epoch from clock_timestamp()) * 1000 as now')
  await holder.query('commit')
  expect((await changed)?.end).toBeGreaterThanOrEqual(Math.floor(Number(rows[0].now)))
})
