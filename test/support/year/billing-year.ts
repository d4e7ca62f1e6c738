import { sql } from 'drizzle-orm'
import { expect } from 'vitest'
import { calendarWindow } from '../../src/calendar.ts'
import { closePeriods, type Database, type EndedPeriod, type Limiter, Ratelimit } from '../../src/index.ts'
import { TestClock } from './clock.ts'
import type { TestDatabase } from './databases.ts'
import { randomFrom } from './random.ts'

const DAY_MS = 86_400_000
const FIRST = Date.UTC(2026, 0, 1)

/** Customers whose periods stay the same, and one of each four whose periods change. */
const SORTS = ['month', 'anchored', 'fixed', 'changing'] as const

interface Customer {
  readonly key: string
  readonly sort: (typeof SORTS)[number]
  plan: Limiter
}

export interface Year {
  readonly customers: number
  /** How many of them call on a day. */
  readonly callsADay: number
  readonly callers: number
  readonly seed: number
  /** Ends a transaction before its commit: it throws, or breaks the connection. */
  crash(tx: Database): Promise<unknown>
}

/** A line of the ledger, and what was granted in its period. */
export interface Line extends EndedPeriod {
  readonly key: string
}

export interface BilledYear {
  /** How often what may happen has happened. */
  readonly seen: Readonly<Record<'told' | 'closed' | 'crashed' | 'denied', number>>
  /** How many rows the limiter has left that count something. Rows that carry over stay. */
  readonly left: number
  readonly lines: readonly (Line & { readonly granted: number })[]
  readonly grants: readonly { readonly key: string; readonly amount: number }[]
  /** What the limiter has handed out as entries. */
  readonly entries: readonly { readonly key: string; readonly amount: number }[]
  readonly keepsPeriods: (key: string) => boolean
}

/**
 * A year of customers who call at random, each call in a transaction that also writes what was granted and the
 * period that it has ended. Closers run at the same time. Some of all transactions crash before their commit.
 *
 * Both lists are what was committed, in the same transactions as the charges.
 */
export async function billingYear(database: TestDatabase, db: Database, year: Year): Promise<BilledYear> {
  const random = randomFrom(year.seed)
  const whole = (below: number) => Math.floor(random() * below)
  const clock = new TestClock(FIRST)
  await database.script(`
    create table entries (key text not null, amount float8 not null);
    create table grants (key text not null, at float8 not null, amount float8 not null);
    create table ledger (key text not null, start float8 not null, "end" float8 not null, used float8 not null)`)
  const options = { prefix: 'year', clock: clock.now, durable: true } as const
  const quota = new Ratelimit({
    ...{ ...options, db, limiter: calendarWindow(0, 'month'), keepEnded: true },
    onEntries: async (tx, entries) => {
      for (const { key, units } of entries) {
        await tx.execute(sql`insert into entries values (${key}, ${units}::float8)`)
      }
    },
  })
  const customers = Array.from({ length: year.customers }, (_, i): Customer => {
    const sort = SORTS[i % SORTS.length] as Customer['sort']
    return { key: `customer ${i}`, sort, plan: planOf(sort, whole) }
  })
  const plans = new Map(customers.map((customer) => [customer.key, customer]))
  const seen = { told: 0, closed: 0, crashed: 0, denied: 0 }

  /** Only what commits counts. */
  async function inTransaction(work: (tx: Database) => Promise<void>): Promise<void> {
    const crashes = random() < 0.15
    try {
      await db.transaction(async (tx) => {
        await work(tx)
        if (crashes) await year.crash(tx)
      })
    } catch (error) {
      if (!crashes) throw error
      seen.crashed++
    }
  }

  async function call({ key, plan: limiter }: Customer): Promise<void> {
    const rate = 1 + whole(20)
    const way = random()
    await inTransaction(async (tx) => {
      const write = async (amount: number, ended: EndedPeriod | undefined) => {
        if (ended) seen.told++
        if (ended) await note(tx, { key, ...ended })
        await tx.execute(sql`insert into grants values (${key}, ${clock.ms}::float8, ${amount}::float8)`)
      }
      const reserved = way < 0.2 ? await quota.reserve(key, { rate, limiter, tx }) : undefined
      const answer = reserved ?? (await quota.limit(key, { rate, limiter, tx, force: way > 0.9 }))
      if (!answer.success) {
        seen.denied++
        return
      }
      await write(rate, answer.ended)
      if (!reserved?.success) return
      const actual = whole(30)
      const settled = await reserved.commit(actual, { tx })
      await write(actual - rate, settled.ended)
    })
  }

  async function closeAll(): Promise<void> {
    for (let found = 1; found > 0; ) {
      await inTransaction(async (tx) => {
        const limiterOf = (key: string) => (plans.get(key) as Customer).plan
        const closed = await closePeriods(tx, { ...options, limiterOf, limit: 40 })
        found = closed.length
        seen.closed += found
        for (const line of closed) await note(tx, line)
      })
    }
  }

  for (let day = 0; day < 365; day++) {
    const callers = Array.from({ length: year.callers }, async (_, caller) => {
      for (let i = caller; i < year.callsADay; i += year.callers) {
        await call(customers[whole(customers.length)] as Customer)
      }
    })
    const closers = day % 9 === 0 ? [closeAll(), closeAll(), closeAll()] : []
    await Promise.all([...callers, ...closers])
    clock.ms = FIRST + (day + 1) * DAY_MS + whole(DAY_MS)
    for (const customer of customers) if (random() < 0.01) customer.plan = planOf(customer.sort, whole)
  }
  clock.advance(2 * 366 * DAY_MS)
  await closeAll()
  await closeAll()

  const grants = await database.rows('select key, at, amount from grants order by at')
  const lines = await database.rows('select key, start, "end", used from ledger order by key, start')
  const entries = await database.rows('select key, amount from entries')
  const left = await database.rows("select key from rate_limit_durable where prefix = 'year' and count > 0")
  const granted = grants.map(({ key, at, amount }) => ({
    ...{ key: String(key), at: Number(at), amount: Number(amount) },
  }))
  return {
    seen,
    left: left.length,
    lines: lines.map((line) => {
      const [key, start] = [String(line['key']), Number(line['start'])]
      const [end, used] = [Number(line['end']), Number(line['used'])]
      const inPeriod = granted.filter((grant) => grant.key === key && grant.at >= start && grant.at < end)
      return { key, start, end, used, granted: inPeriod.reduce((sum, { amount }) => sum + amount, 0) }
    }),
    grants: granted,
    entries: entries.map(({ key, amount }) => ({ key: String(key), amount: Number(amount) })),
    keepsPeriods: (key: string) => plans.get(key)?.sort !== 'changing',
  }
}

/**
 * Each customer's sum, and each period's where the periods stay the same. Otherwise a year may begin when a
 * closed month began, and the calls do not tell to which of them they belong.
 */
export function expectToBalance({ seen, lines, grants, entries, left, keepsPeriods }: BilledYear): void {
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(10)
  expect(left).toBe(0)
  const billed = lines.map(({ key, used }) => ({ key, amount: used }))
  expect(sumsOf(billed)).toEqual(sumsOf(grants))
  expect(sumsOf(entries)).toEqual(sumsOf(grants))
  const plain = lines.filter(({ key }) => keepsPeriods(key))
  expect(new Set(plain.map(({ key, start }) => `${key} ${start}`)).size).toBe(plain.length)
  for (const line of plain) {
    expect(line).toEqual({ ...line, used: line.granted })
  }
}

function sumsOf(amounts: readonly { readonly key: string; readonly amount: number }[]): Map<string, number> {
  const sums = new Map<string, number>()
  for (const { key, amount } of amounts) sums.set(key, (sums.get(key) ?? 0) + amount)
  return new Map([...sums].toSorted(([one], [other]) => (one < other ? -1 : 1)))
}

/** A plan of the sort. Its size changes, and of one sort its periods too. */
function planOf(sort: Customer['sort'], whole: (below: number) => number): Limiter {
  const tokens = [30, 100, 1000][whole(3)] as number
  if (sort === 'fixed') return Ratelimit.fixedWindow(tokens, '20d')
  if (sort === 'month') return calendarWindow(tokens, 'month', { timeZone: 'Asia/Tokyo' })
  if (sort === 'anchored') {
    return calendarWindow(tokens, 'month', {
      timeZone: 'Europe/Berlin',
      anchor: new Date('2025-10-31T10:15:00Z'),
      ...(whole(2) ? { rollover: { max: tokens / 2 } } : {}),
    })
  }
  const period = (['day', 'week', 'month', 'year'] as const)[whole(4)] ?? 'day'
  return calendarWindow(tokens, period, { timeZone: whole(2) ? 'UTC' : 'America/New_York' })
}

async function note(tx: Database, { key, start, end, used }: Line): Promise<void> {
  await tx.execute(sql`insert into ledger values (${key}, ${start}::float8, ${end}::float8, ${used}::float8)`)
}
