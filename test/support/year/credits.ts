import { sql } from 'drizzle-orm'
import { expect } from 'vitest'
import { type CreditReservation, Credits } from '../../../src/credits/index.ts'
import { sumOf, type World } from './world.ts'

const TABLES = `
  create table credit_grants (key text, id text, amount float8);
  create table credit_moves (key text, units float8);
  create table credit_voids (key text, id text, lost float8)`

interface Open {
  readonly key: string
  readonly reservation: CreditReservation
  readonly rate: number
}

/** A grant that was asked for, maybe in vain. Its payment may be reported again. */
interface Payment {
  readonly key: string
  readonly id: string
  readonly amount: number
  readonly days: number
  readonly priority: number
}

export interface CreditsOfYear {
  /** Some call of some customer. */
  call(): Promise<void>
  /** What an ended grant has lost does not change any more. */
  readLost(): Promise<void>
  /** Each key's grants, and what was taken from them, are what was committed. */
  expectToBalance(): Promise<void>
}

/**
 * The credits of the year: grants that end, payments that are reported again, estimates, refunds, debts and
 * grants that are taken back.
 */
export async function creditsOf(world: World, customers: number): Promise<CreditsOfYear> {
  const { database, db, clock, random, whole, seen, note } = world
  await database.script(TABLES)
  const credits = new Credits({
    ...{ db, dated: true, keep: '3000d', prefix: 'year-credits', durable: true },
    ...{ clock: clock.now },
  })
  // One customer in five buys credits, so that most of them have some when they call.
  const keys = Array.from({ length: Math.ceil(customers / 5) }, (_, i) => `customer ${i}`)
  const [open, payments]: [Open[], Payment[]] = [[], []]
  const lost = new Map<string, number>()

  async function pay(payment: Payment): Promise<void> {
    const { key, id, amount, days, priority } = payment
    await world.commits(async (tx, saw) => {
      const expires = days > 0 ? ({ expires: `${days}d` } as const) : {}
      const { repeated } = await credits.grant(key, amount, { id, priority, ...expires, tx })
      saw(repeated ? 'grantedAgain' : 'granted')
      if (!repeated) await note(tx, sql`credit_grants`, [key, id, amount])
    })
    payments.push(payment)
  }

  const newPayment = (key: string): Payment => ({
    ...{ key, id: `payment ${whole(1e9)}`, amount: 10 + whole(90) },
    ...{ days: random() < 0.8 ? 1 + whole(30) : 0, priority: whole(3) },
  })

  async function take(key: string, rate: number, force: boolean): Promise<void> {
    await world.commits(async (tx, saw) => {
      const answer = await credits.limit(key, { rate, force, tx })
      if (answer.success) await note(tx, sql`credit_moves`, [key, rate])
      if (answer.success) saw('taken')
      if (answer.success && force && answer.remaining === 0) saw('owed')
    })
  }

  async function giveBack(key: string, rate: number): Promise<void> {
    await world.commits(async (tx, saw) => {
      const answer = await credits.limit(key, { rate: -rate, tx })
      if (!answer.success) return
      await note(tx, sql`credit_moves`, [key, 0 - (answer.returned ?? 0)])
      saw('givenBack')
    })
  }

  async function reserve(key: string, rate: number): Promise<void> {
    const made: Open[] = []
    const isDone = await world.commits(async (tx) => {
      const reservation = await credits.reserve(key, { rate, tx })
      if (!reservation.success) return
      await note(tx, sql`credit_moves`, [key, rate])
      made.push({ key, reservation, rate })
    })
    // Some are never settled, and stay charged.
    if (isDone && random() < 0.8) open.push(...made)
  }

  async function settle(): Promise<void> {
    const one = world.takeOne(open)
    if (!one) return
    const { key, reservation, rate } = one
    const actual = whole(25)
    const isDone = await world.commits(async (tx, saw) => {
      const { returned = 0 } = await reservation.commit(actual, { tx })
      if (actual < rate && returned < rate - actual) saw('late')
      await note(tx, sql`credit_moves`, [key, actual > rate ? actual - rate : 0 - returned])
    })
    if (!isDone) open.push(one)
  }

  async function takeBack(): Promise<void> {
    const payment = world.takeOne(payments)
    if (!payment) return
    const { key, id } = payment
    await world.commits(async (tx, saw) => {
      const taken = await credits.voidGrant(key, id, { tx })
      if (taken === 0) return
      await note(tx, sql`credit_voids`, [key, id, taken])
      saw('voided')
    })
  }

  return {
    async call() {
      const key = keys[whole(keys.length)] as string
      const [way, rate] = [random(), 1 + whole(20)]
      if (way < 0.38) await pay(newPayment(key))
      else if (way < 0.43) await pay(world.takeOne(payments) ?? newPayment(key))
      else if (way < 0.68) await take(key, rate, random() < 0.2)
      else if (way < 0.73) await giveBack(key, rate)
      else if (way < 0.88) await reserve(key, rate)
      else if (way < 0.93) await settle()
      else await takeBack()
    },

    async readLost() {
      for (const key of keys) {
        for (const { id, amount, used, ended } of await credits.grants(key)) {
          if (!ended) continue
          const name = `${key} ${id}`
          if (!lost.has(name) && ended === 'expired') seen.expired++
          expect(lost.get(name) ?? amount - used).toBe(amount - used)
          lost.set(name, amount - used)
        }
      }
    },

    async expectToBalance() {
      const byKey = async (table: string) =>
        new Map(
          (await database.rows(`select key, json_agg(t) as rows from ${table} t group by key`)).map(
            ({ key, rows }) => [String(key), rows as Record<string, unknown>[]],
          ),
        )
      const [granted, moved] = [await byKey('credit_grants'), await byKey('credit_moves')]
      const voided = await byKey('credit_voids')
      for (const key of keys) {
        const grants = await credits.grants(key)
        const amounts = grants.map(({ id, amount }) => ({ key, id, amount }))
        expect(new Set(amounts)).toEqual(new Set(granted.get(key)))
        const { used, remaining } = await credits.getRemaining(key)
        const live = grants.filter(({ ended }) => !ended)
        const debt = used - sumOf(live.map((grant) => grant.used))
        expect(debt).toBeGreaterThanOrEqual(0)
        const total = sumOf((moved.get(key) ?? []).map(({ units }) => Number(units)))
        expect(sumOf(grants.map((grant) => grant.used)) + debt).toBe(total)
        expect(remaining).toBe(Math.max(sumOf(live.map(({ left }) => left)) - debt, 0))
        for (const { amount, used: taken, left, ended } of grants) {
          expect(taken).toBeGreaterThanOrEqual(0)
          expect(taken + (ended ? 0 : left)).toBeLessThanOrEqual(amount)
        }
        const gone = grants.filter(({ ended, amount, used: taken }) => ended === 'voided' && amount > taken)
        const lostBy = gone.map(({ id, amount, used: taken }) => ({ key, id, lost: amount - taken }))
        expect(new Set(lostBy)).toEqual(new Set(voided.get(key)))
      }
    },
  }
}
