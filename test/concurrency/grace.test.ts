import { expect, test, vi } from 'vitest'
import { calendarWindow } from '../../src/calendar.ts'
import {
  type ClosedPeriod,
  closePeriods,
  type EndedPeriod,
  Ratelimit,
  type Reservation,
} from '../../src/index.ts'
import { TestClock } from '../support/clock.ts'
import { useDatabase } from '../support/databases.ts'
import { PATIENTLY } from '../support/patience.ts'

const database = useDatabase()
const KEYS = 40
const END = Date.UTC(2026, 1, 1)

test('late costs, calls of the new period and closings at once bill each period once', async () => {
  const clock = new TestClock(END - 1000)
  const limiter = calendarWindow(1000, 'month')
  const config = { limiter, prefix: 'grace', keepEnded: true, grace: '1h', clock: clock.now } as const
  const [one, other, closer] = [1, 2, 3].map(() => database.connect(4)) as [
    ...[ReturnType<typeof database.connect>, ReturnType<typeof database.connect>],
    ReturnType<typeof database.connect>,
  ]
  const [settling, calling] = [one, other].map(
    ({ db }) => new Ratelimit({ timeout: false, ...config, db }),
  ) as [Ratelimit, Ratelimit]
  const billed = new Map<string, number>()
  const add = (key: string, period: EndedPeriod | undefined) => {
    if (period?.end === END) billed.set(key, (billed.get(key) ?? 0) + period.used)
  }
  const open: { readonly key: string; readonly actual: number; readonly reservation: Reservation }[] = []
  for (let i = 0; i < KEYS * 3; i++) {
    const key = `key ${i % KEYS}`
    const reservation = await settling.reserve(key, { rate: 10 })
    if (reservation.success) open.push({ key, actual: (i * 7) % 21, reservation })
  }
  clock.ms = END
  const closing = async () => {
    for (let times = 0; times < 8; times++) {
      const closed: ClosedPeriod[] = await closer.db.transaction((tx) =>
        closePeriods(tx, { prefix: 'grace', limiter, durable: false, clock: clock.now, limit: 3 }),
      )
      for (const { key, ...ended } of closed) add(key, ended)
    }
  }
  await Promise.all([
    closing(),
    ...open.map(async ({ key, actual, reservation }) => {
      const { correction, ended } = await reservation.commit(actual)
      add(key, correction)
      add(key, ended)
    }),
    ...Array.from({ length: KEYS / 2 }, async (_, i) => {
      const answer = await calling.limit(`key ${i * 2}`)
      if (answer.success) add(`key ${i * 2}`, answer.ended)
    }),
  ])
  const rest = await closer.db.transaction((tx) =>
    closePeriods(tx, { prefix: 'grace', limiter, durable: false, clock: clock.now, limit: KEYS }),
  )
  for (const { key, ...ended } of rest) add(key, ended)
  const costs = new Map<string, number>()
  for (const { key, actual } of open) costs.set(key, (costs.get(key) ?? 0) + actual)
  expect(new Map([...billed].toSorted())).toEqual(new Map([...costs].toSorted()))
  expect(billed.size).toBe(KEYS)
})

test('a period that ends while the settlement of a list waits for its row is corrected', async () => {
  const { db } = database.connect(4)
  const common = { db, timeout: false, cleanupProbability: 0 } as const
  const [quota, other] = ['ends', 'other'].map(
    (prefix) =>
      new Ratelimit({
        ...{ ...common, prefix, limiter: Ratelimit.fixedWindow(10, '1s') },
        ...{ keepEnded: true, grace: '1h' },
      }),
  ) as [Ratelimit, Ratelimit]
  const requests = [quota, other].map((ratelimit) => ({ ratelimit, key: 'key', rate: 6 }))
  const reserved = await Ratelimit.reserveAll(requests)
  if (!reserved.success) throw new Error('denied')
  const blocker = await database.client()
  await blocker.query('begin')
  try {
    await blocker.query(`select from rate_limit_ephemeral where prefix = 'ends' for update`)
    const settled = reserved.commit([2, 2])
    const end = Math.max(...reserved.results.map(({ reset }) => reset))
    const isOver = async () => (await quota.getRemaining('key')).reset > end + 100
    await vi.waitUntil(isOver, PATIENTLY)
    await blocker.query('commit')
    expect(await settled).toMatchObject([{ returned: 4 }, { returned: 4 }])
  } finally {
    await blocker.query('rollback')
  }
})
