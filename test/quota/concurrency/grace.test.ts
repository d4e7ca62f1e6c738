import { expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import {
  type Allowed,
  type Database,
  type EndedPeriod,
  Ratelimit,
  type Reservation,
} from '../../../src/index.ts'
import { type ClosedPeriod, closePeriods, Quota, reserveAll } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { PATIENTLY } from '../../support/patience.ts'

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
    ({ db }) => new Quota({ durable: false, timeout: false, ...config, db }),
  ) as [Quota, Quota]
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
  const rows = { db: closer.db, prefix: 'grace', limiter, durable: false, clock: clock.now }
  const closing = async () => {
    for (let times = 0; times < 8; times++) {
      const closed: ClosedPeriod[] = await closer.db.transaction((tx) => closePeriods(rows, { tx, limit: 3 }))
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
  const rest = await closer.db.transaction((tx) => closePeriods(rows, { tx, limit: KEYS }))
  for (const { key, ...ended } of rest) add(key, ended)
  const costs = new Map<string, number>()
  for (const { key, actual } of open) costs.set(key, (costs.get(key) ?? 0) + actual)
  expect(new Map([...billed].toSorted())).toEqual(new Map([...costs].toSorted()))
  expect(billed.size).toBe(KEYS)
})

const CASES = [false, true].flatMap((isList) =>
  (['alone', 'in a transaction', 'by name'] as const).flatMap((how) =>
    [2, 9].map((cost) => ({ what: isList ? 'a list' : 'one limit', isList, how, cost })),
  ),
)

/** Charges an estimate of 6 of one limit, or of two. They are settled with a cost of each. */
async function estimate(
  { isList, how, cost }: (typeof CASES)[number],
  db: Database,
  ...quotas: readonly [Quota, Quota]
) {
  const naming = how === 'by name' ? ({ id: 'job', expires: '1h' } as const) : {}
  const [first] = quotas
  const requests = quotas.map((ratelimit) => ({ ratelimit, key: 'key', rate: 6 }))
  const one = isList ? undefined : await first.reserve('key', { rate: 6, ...naming })
  const list = isList ? await reserveAll(requests, naming) : undefined
  const settleIn = async (tx: Database | undefined): Promise<readonly Allowed[]> => {
    if (list?.success) return list.commit([cost, cost], { tx })
    if (one?.success) return [await one.commit(cost, { tx })]
    throw new Error('denied')
  }
  const settle = () => (how === 'in a transaction' ? db.transaction(settleIn) : settleIn(undefined))
  const end = Math.max(...(one ? [one] : (list?.results ?? [])).map(({ reset }) => reset))
  return { settle, end }
}

test.concurrent.each(CASES)(
  'a cost of $cost of $what, settled $how: a period that ends while it waits for its row is corrected',
  async (each) => {
    const { what, isList, how, cost } = each
    const { db } = database.connect(4)
    const limiter = Ratelimit.fixedWindow(10, '500ms')
    const common = { db, limiter, timeout: false, cleanupProbability: 0 } as const
    const [prefix, other] = [0, 1].map((place) => `${what} ${how} ${cost} ${place}`) as [string, string]
    const quotas = [prefix, other].map(
      (own) => new Quota({ durable: false, ...common, prefix: own, keepEnded: true, grace: '1h' }),
    ) as [Quota, Quota]
    const { settle, end } = await estimate(each, db, ...quotas)
    const blocker = await database.client()
    await blocker.query('begin')
    try {
      await blocker.query(`select from rate_limit_ephemeral where prefix = '${prefix}' for update`)
      const settled = settle()
      const isOver = async () => (await quotas[0].getRemaining('key')).reset > end + 100
      await vi.waitUntil(isOver, { ...PATIENTLY, interval: 50 })
      await blocker.query('commit')
      const answer = cost < 6 ? { returned: 6 - cost, remaining: 10 } : { remaining: 10 }
      expect(await settled).toMatchObject(isList ? [answer, answer] : [answer])
    } finally {
      await blocker.query('rollback')
    }
    const closed = (own: Quota) => db.transaction((tx) => closePeriods(own, { tx }))
    expect(await closed(quotas[0])).toMatchObject([{ used: cost }])
    expect(await closed(quotas[1])).toMatchObject(isList ? [{ used: cost }] : [])
  },
)

test.each(CASES)(
  'a cost of $cost of $what, settled $how, behind the first call of the next period is a correction',
  async (each) => {
    const { what, isList, how, cost } = each
    const { db } = database.connect(4)
    const limiter = calendarWindow(10, 'month')
    const common = { db, limiter, timeout: false, cleanupProbability: 0 } as const
    const at = (place: number, ms: number) => {
      const own = { prefix: `next ${what} ${how} ${cost} ${place}`, clock: new TestClock(ms).now }
      return new Quota({ durable: false, ...common, ...own, keepEnded: true, grace: '1h' })
    }
    const [later, other] = [at(0, END), at(1, END - 1)]
    const { settle } = await estimate(each, db, at(0, END - 1), other)
    const { settled } = await db.transaction(async (tx) => {
      expect(await later.limit('key', { rate: 3, tx })).toMatchObject({ ended: { end: END, used: 6 } })
      const waiting = settle()
      await untilWaiting(database)
      return { settled: waiting }
    })
    const corrected = { correction: { end: END, used: cost - 6 }, remaining: 7 }
    expect(await settled).toMatchObject(isList ? [corrected, { remaining: 10 - cost }] : [corrected])
    expect(await later.getRemaining('key')).toMatchObject({ used: 3 })
    expect(await other.getRemaining('key')).toMatchObject({ used: isList ? cost : 0 })
  },
)

test('a list that is too late in a transaction keeps no lock of a later row before that of an earlier one', async () => {
  const { db } = database.connect(4)
  const clock = new TestClock()
  const common = { db, limiter: Ratelimit.fixedWindow(10, '1h'), timeout: false, clock: clock.now } as const
  const requests = ['first', 'second'].map((prefix) => ({
    ratelimit: new Quota({
      durable: false,
      ...common,
      prefix,
      cleanupProbability: 0,
      keepEnded: true,
      grace: '1h',
    }),
    key: 'key',
    rate: 6,
  }))
  const reserved = allowed(await reserveAll(requests))
  clock.advance(3_600_000)
  const blocker = await database.client()
  const lock = (prefix: string) =>
    blocker.query(`select from rate_limit_ephemeral where prefix = '${prefix}' for update`)
  await blocker.query('begin')
  try {
    await lock('first')
    // The first limit gets nothing back, so the list need not lock it.
    const settled = db.transaction((tx) => reserved.commit([6, 2], { tx }))
    await untilWaiting(database)
    await lock('second')
    await blocker.query('commit')
    expect(await settled).toMatchObject([{ remaining: 10 }, { returned: 4 }])
  } finally {
    await blocker.query('rollback')
  }
})
