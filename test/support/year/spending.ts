import { sql } from 'drizzle-orm'
import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { expect } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import type { Database, EndedPeriod } from '../../../src/index.ts'
import { closePeriods, Quota, type SettledSpending, type Spent, spend } from '../../../src/quota/index.ts'
import { sumOf, type World } from './world.ts'

// Who pays a cost, in this order: the customer's month, the week of the team, and what was bought.
const SOURCES = ['year-month', 'year-team', 'year-bought'] as const
const [MONTH, TEAM, BOUGHT] = SOURCES

const TABLES = `
  create table spent_answers (source text, key text, start float8, units float8);
  create table spent_entries (source text, key text, start float8, units float8);
  create table spent_closed (source text, key text, start float8, units float8);
  create table bought (key text, units float8)`

interface Customer {
  readonly key: string
  readonly team: string
  /** The size of the month. It changes, and its period does not. */
  tokens: number
}

/** A cost that was estimated, and is not settled. */
interface Open {
  readonly customer: Customer
  readonly spent: Spent & { readonly success: true }
  readonly at: number
}

export interface SpendingOfYear {
  /** Some call of some customer. */
  call(): Promise<void>
  /** Hands out the periods that are over. */
  close(): Promise<void>
  /** The answers, the entries, the closed periods and the rows have the same sums. */
  expectToBalance(): Promise<void>
}

/** The costs of the year that several limits share: estimates, settled below and above, into debt too. */
export async function spendingOf(world: World, customers: number): Promise<SpendingOfYear> {
  const { database, db, clock, random, whole, note } = world
  await database.script(TABLES)
  const enter = async (tx: Database, entries: readonly Entry[]) => {
    for (const { prefix, key, kind, start = 0, units } of entries) {
      if (kind !== 'grant') await note(tx, sql`spent_entries`, [prefix, key, start, units])
    }
  }
  const options = { db, durable: true, clock: clock.now, use: [ledger(enter)] } as const
  const keeping = { ...options, keepEnded: true } as const
  const week = calendarWindow(15, 'week')
  const month = new Quota({ ...keeping, prefix: MONTH, limiter: calendarWindow(0, 'month') })
  const team = new Quota({ ...keeping, prefix: TEAM, limiter: week })
  const bought = new Credits({ ...options, prefix: BOUGHT })
  const all = Array.from({ length: Math.ceil(customers / 25) }, (_, i): Customer => {
    return { key: `customer ${i}`, team: `team ${Math.floor(i / 4)}`, tokens: 10 }
  })
  const [open, events]: [Open[], { readonly customer: Customer; readonly id: string }[]] = [[], []]
  let ids = 0

  const requestsOf = ({ key, team: own, tokens }: Customer) => [
    { ratelimit: month, key, limiter: calendarWindow(tokens, 'month') },
    { ratelimit: team, key: own },
    { ratelimit: bought, key },
  ]
  const keysOf = ({ key, team: own }: Customer) => [key, own, key]

  /** Writes the periods that the answers have ended, and what each limit has paid at a time. */
  async function write(
    tx: Database,
    customer: Customer,
    { results }: Pick<SettledSpending, 'results'>,
    units: readonly number[],
    at: number,
  ): Promise<void> {
    for (const [place, source] of SOURCES.entries()) {
      const key = keysOf(customer)[place] as string
      const answer = results[place]
      await writeEnded(tx, source, key, answer?.success ? answer.ended : undefined)
      const paid = units[place] ?? 0
      if (paid !== 0) await note(tx, sql`spent_answers`, [source, key, startOf(source, at), paid])
    }
  }

  async function writeEnded(tx: Database, source: string, key: string, ended: EndedPeriod | undefined) {
    if (ended) await note(tx, sql`spent_closed`, [source, key, ended.start, ended.used])
  }

  async function buy({ key }: Customer): Promise<void> {
    await world.commits(async (tx, saw) => {
      const units = 5 + whole(15)
      await bought.grant(key, units, { tx })
      await note(tx, sql`bought`, [key, units])
      saw('bought')
    })
  }

  async function spendFor(customer: Customer, event: string | undefined): Promise<void> {
    const made: Open[] = []
    const rate = 1 + whole(25)
    const atLeast = random() < 0.3 ? 1 + whole(rate) : rate
    const once = event === undefined ? {} : { once: { id: event, for: '800d' } as const }
    const isDone = await world.commits(async (tx, saw) => {
      const spent = await spend(requestsOf(customer), { rate, atLeast, tx, ...once })
      if (!spent.success) saw('spentTooMuch')
      else if (spent.repeated) saw('spentAgain')
      else {
        const units = sumOf(spent.granted)
        expect(units <= rate && units >= atLeast).toBe(true)
        await write(tx, customer, spent, spent.granted, clock.ms)
        saw('spent')
        made.push({ customer, spent, at: clock.ms })
      }
    })
    if (isDone && event !== undefined) events.push({ customer, id: event })
    // Some are never settled, and stay as they were estimated.
    if (isDone && random() < 0.85) open.push(...made)
  }

  async function settle(): Promise<void> {
    const one = world.takeOne(open)
    if (!one) return
    const { customer, spent, at } = one
    const [estimate, actual] = [sumOf(spent.granted), whole(40)]
    const debt = random() < 0.5 ? 'first' : 'last'
    const isDone = await world.commits(async (tx, saw) => {
      const limiters = requestsOf(customer).map(({ limiter }) => limiter)
      const settled = await spent.commit(actual, { tx, debt, limiters })
      const changes = settled.granted.map((units, place) => units - (spent.granted[place] ?? 0))
      await write(tx, customer, settled, changes, clock.ms)
      if (actual > estimate) {
        expect(sumOf(changes)).toBe(actual - estimate)
        saw('spentMore')
        const [first, last] = [customer.tokens, (await bought.getRemaining(customer.key, { tx })).limit]
        const { used } = await (debt === 'first' ? month : bought).getRemaining(customer.key, { tx })
        if (used > (debt === 'first' ? first : last)) saw(debt === 'first' ? 'owedByMonth' : 'owedByBought')
        return
      }
      // A period that is over gives nothing back.
      const parts = partsToReturn(spent.granted, estimate - actual)
      const isOver = SOURCES.map((source) => startOf(source, at) !== startOf(source, clock.ms))
      expect(changes).toEqual(parts.map((part, place) => (isOver[place] ? 0 : 0 - part)))
      saw(isOver.some((each, place) => each && (parts[place] ?? 0) > 0) ? 'returnedLate' : 'returned')
    })
    if (!isDone) open.push(one)
  }

  return {
    async call() {
      const customer = all[whole(all.length)] as Customer
      const way = random()
      if (way < 0.15) await buy(customer)
      else if (way < 0.2) customer.tokens = [5, 10, 20][whole(3)] as number
      else if (way < 0.6) await spendFor(customer, random() < 0.3 ? `event ${ids++}` : undefined)
      else if (way < 0.95) await settle()
      else {
        const again = world.takeOne(events)
        if (again) await spendFor(again.customer, again.id)
      }
    },

    async close() {
      for (const quota of [month, team]) {
        for (let found = 1; found > 0; ) {
          await world.commits(async (tx) => {
            const closed = await closePeriods(quota, { tx, limit: 40 })
            found = closed.length
            for (const { key, ...ended } of closed) await writeEnded(tx, quota.prefix, key, ended)
          })
        }
      }
    },

    async expectToBalance() {
      const sums = async (table: string, where = 'true') => {
        const rows = await database.rows(
          `select source, key, start, sum(units) as units from ${table} where ${where} group by 1, 2, 3`,
        )
        const pairs = rows.map(
          (row) => [`${row['source']} ${row['key']} ${row['start']}`, Number(row['units'])] as const,
        )
        return new Map(pairs.filter(([, units]) => units !== 0))
      }
      const answers = await sums('spent_answers')
      expect(await sums('spent_entries')).toEqual(answers)
      const isWindow = `source <> '${BOUGHT}'`
      expect(await sums('spent_closed')).toEqual(await sums('spent_answers', isWindow))
      const times =
        'select count(*)::int as n from spent_closed group by source, key, start having count(*) > 1'
      expect(await database.rows(times)).toEqual([])
      const grants = await database.rows('select key, sum(units) as units from bought group by key')
      const granted = new Map(grants.map(({ key, units }) => [String(key), Number(units)]))
      for (const { key } of all) {
        const [used, limit] = [answers.get(`${BOUGHT} ${key} 0`) ?? 0, granted.get(key) ?? 0]
        const remaining = Math.max(limit - used, 0)
        expect(await bought.getRemaining(key)).toMatchObject({ used, limit, remaining })
      }
    },
  }
}

/** When the period of a limit began, by the days of UTC. A balance has none. */
function startOf(source: (typeof SOURCES)[number], at: number): number {
  const date = new Date(at)
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()]
  if (source === MONTH) return Date.UTC(year, month, 1)
  return source === TEAM ? Date.UTC(year, month, day - ((date.getUTCDay() + 6) % 7)) : 0
}

/** What each is to give back of an amount: the last one first. */
function partsToReturn(granted: readonly number[], amount: number): readonly number[] {
  const after = granted.map((_, place) => sumOf(granted.slice(place + 1)))
  return granted.map((units, place) => Math.min(units, Math.max(amount - (after[place] ?? 0), 0)))
}
