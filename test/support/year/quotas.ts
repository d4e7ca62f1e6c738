import { sql } from 'drizzle-orm'
import { ledger } from 'drizzle-ratelimit/ledger'
import { expect } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import {
  type Allowed,
  type Database,
  type EndedPeriod,
  type Limiter,
  Ratelimit,
  type Reservation,
} from '../../../src/index.ts'
import { closePeriods, Quota, settleExpired } from '../../../src/quota/index.ts'
import { DAY_MS, type What, type World } from './world.ts'

/** How long an estimate can correct its period after its end. */
export const GRACE = '3d'
export const GRACE_MS: number = 3 * DAY_MS

/** What crosses the threshold. */
export const WARN_AT = 25

/** The time after which an estimate that nobody settles may be ended: before its period, and long after it. */
const LEFT_FOR = ['1d', '5d', '45d'] as const

/** Customers whose periods stay the same, and one of each four whose periods change. */
const SORTS = ['month', 'anchored', 'fixed', 'changing'] as const

interface Customer {
  readonly key: string
  readonly sort: (typeof SORTS)[number]
  plan: Limiter
}

interface Open {
  readonly customer: Customer
  readonly reservation: Reservation
  /** Its name, if it has one. */
  readonly id: string | undefined
  readonly rate: number
  readonly at: number
}

const TABLES = `
  create table entries (key text, start float8, units float8);
  create table costs (key text, at float8, units float8, estimate bool);
  create table settlements (key text, reserved_at float8, at float8, estimate float8, actual float8, corrected bool);
  create table crossings (key text, at float8);
  create table ledger (key text, start float8, "end" float8, used float8, correction bool)`

type Saw = (what: What) => void
/** The part of an answer that is written down. */
type Told = Pick<Allowed, 'ended' | 'crossed' | 'correction'>

export interface Quotas {
  /** Whether all plans of the customer have the same periods. */
  keepsPeriods(key: string): boolean
  isFixed(key: string): boolean
  /** Some call of some customer. */
  call(): Promise<void>
  /** Changes some plans. Where the periods change too, it ends the present one. */
  changePlans(): Promise<void>
  /** Settles the estimates with a name that nobody has settled. */
  settleExpired(): Promise<void>
  /** Closes all periods that are over, or that have been over for the grace time. */
  close(grace?: typeof GRACE): Promise<void>
}

/**
 * The quotas of the year. Each call writes what it was granted and which period it has ended, in its own
 * transaction, so that the tables have what was committed.
 */
export async function quotasOf(world: World, customers: number): Promise<Quotas> {
  const { database, db, clock, random, whole, seen, note } = world
  await database.script(TABLES)
  const options = { prefix: 'year', clock: clock.now, durable: true } as const
  const quota = new Quota({
    ...{ ...options, db, limiter: calendarWindow(0, 'month'), keepEnded: true, grace: GRACE },
    thresholds: [{ used: WARN_AT }],
    use: [
      ledger(async (tx, entries) => {
        for (const { key, start = 0, units } of entries) await note(tx, sql`entries`, [key, start, units])
      }),
    ],
  })
  const all = Array.from({ length: customers }, (_, i): Customer => {
    const sort = SORTS[i % SORTS.length] as Customer['sort']
    return { key: `customer ${i}`, sort, plan: planOf(sort, whole) }
  })
  const plans = new Map(all.map((customer) => [customer.key, customer]))
  const [open, events]: [Open[], { readonly customer: Customer; readonly id: string }[]] = [[], []]
  const abandoned = new Map<string, Open>()
  const limiterOf = (key: string) => (plans.get(key) as Customer).plan
  let ids = 0

  const writeEnded = async (tx: Database, key: string, ended: EndedPeriod | undefined) => {
    if (ended) await note(tx, sql`ledger`, [key, ended.start, ended.end, ended.used, false])
  }
  const write = async (tx: Database, saw: Saw, { key }: Pick<Customer, 'key'>, answer: Told) => {
    const { ended, crossed, correction } = answer
    await writeEnded(tx, key, ended)
    if (ended) saw('toldByCalls')
    if (crossed) await note(tx, sql`crossings`, [key, clock.ms])
    if (!correction) return
    saw('corrected')
    await note(tx, sql`ledger`, [key, correction.start, correction.end, correction.used, true])
  }

  /** A charge, by force or not, of an event that has an id or not. */
  async function charge(customer: Customer, rate: number): Promise<void> {
    const { key, plan: limiter } = customer
    const id = random() < 0.3 ? `event ${ids++}` : undefined
    const once = id === undefined ? {} : { once: { id, for: '800d' } as const }
    const force = random() < 0.1
    const isDone = await world.commits(async (tx, saw) => {
      const answer = await quota.limit(key, { rate, limiter, tx, force, ...once })
      if (!answer.success) saw('denied')
      else {
        saw('charged')
        await write(tx, saw, customer, answer)
        await note(tx, sql`costs`, [key, clock.ms, rate, false])
      }
    })
    // What was denied or has crashed may be sent again too.
    if (id !== undefined && isDone) events.push({ customer, id })
  }

  /** An event of some time ago, once more. If it was charged then, nothing is charged now. */
  async function repeat(): Promise<void> {
    const event = world.takeOne(events)
    if (!event) return
    const { customer, id } = event
    await world.commits(async (tx, saw) => {
      const once = { id, for: '800d' } as const
      const answer = await quota.limit(customer.key, { rate: 3, limiter: customer.plan, tx, once })
      if (!answer.success) return
      await write(tx, saw, customer, answer)
      if (answer.repeated) saw('repeated')
      else await note(tx, sql`costs`, [customer.key, clock.ms, 3, false])
    })
  }

  /** An estimate, with a name or without one. One of five is never settled by its process. */
  async function reserve(customer: Customer, rate: number): Promise<void> {
    const { key, plan: limiter } = customer
    const made: Open[] = []
    const id = random() < 0.4 ? `job ${ids++}` : undefined
    const isAbandoned = random() < 0.2
    const named =
      id === undefined ? {} : ({ id, expires: isAbandoned ? (LEFT_FOR[whole(3)] ?? '5d') : '900d' } as const)
    const isDone = await world.commits(async (tx, saw) => {
      const reservation = await quota.reserve(key, { rate, limiter, tx, ...named })
      if (!reservation.success) return
      await write(tx, saw, customer, reservation)
      await note(tx, sql`costs`, [key, clock.ms, rate, true])
      saw('reserved')
      made.push({ customer, reservation, id, rate, at: clock.ms })
    })
    if (!isDone) return
    if (!isAbandoned) open.push(...made)
    else seen.abandoned += made.length
    if (isAbandoned && id !== undefined) for (const one of made) abandoned.set(id, one)
  }

  /** Settles an estimate, here or as another process would. If that crashes, it is settled some other day. */
  async function settle(): Promise<void> {
    const one = world.takeOne(open)
    if (!one) return
    const { customer, reservation, id, rate, at } = one
    const actual = whole(30)
    const isDone = await world.commits(async (tx, saw) => {
      const plan = { limiter: customer.plan, tx }
      const settled = await (id === undefined || random() < 0.5
        ? reservation.commit(actual, plan)
        : quota.settle({ key: customer.key, id }, actual, plan))
      await write(tx, saw, customer, settled)
      saw('settled')
      const isCorrected = settled.correction !== undefined
      await note(tx, sql`settlements`, [customer.key, at, clock.ms, rate, actual, isCorrected])
    })
    if (!isDone) open.push(one)
    // A name that is settled is settled once.
    else if (id !== undefined) {
      const settled = await quota.settle({ key: customer.key, id }, actual, { limiter: customer.plan })
      expect(settled).toHaveProperty('repeated', true)
      seen.settledAgain++
    }
  }

  return {
    keepsPeriods: (key) => plans.get(key)?.sort !== 'changing',
    isFixed: (key) => plans.get(key)?.sort === 'fixed',

    async call() {
      const customer = all[whole(all.length)] as Customer
      const [way, rate] = [random(), 1 + whole(20)]
      if (way < 0.25) await reserve(customer, rate)
      else if (way < 0.43) await settle()
      else if (way < 0.48) await repeat()
      else await charge(customer, rate)
    },

    async changePlans() {
      const changing = all.filter(() => random() < 0.01)
      await Promise.all(
        changing.map(async (customer) => {
          const { key, sort, plan: from } = customer
          const to = planOf(sort, whole)
          const isDone =
            sort !== 'changing' ||
            (await world.commits(async (tx, saw) => {
              const ended = await quota.changePlan(key, { from, to, tx })
              await writeEnded(tx, key, ended)
              saw('changed')
              if (ended) saw('endedByChanges')
            }))
          if (!isDone) return
          customer.plan = to
        }),
      )
    },

    async settleExpired() {
      for (let found = 1; found > 0; ) {
        const as = random() < 0.5 ? 'release' : 'charge'
        await world.commits(async (tx, saw) => {
          const ended = await settleExpired(quota, { tx, as, limit: 20, limiterOf })
          found = ended.length
          for (const { id, key, rate, ...answer } of ended) {
            const { at } = abandoned.get(id) as Open
            await write(tx, saw, { key }, answer)
            const [actual, isCorrected] = [as === 'charge' ? rate : 0, answer.correction !== undefined]
            await note(tx, sql`settlements`, [key, at, clock.ms, rate, actual, isCorrected])
            saw(as === 'charge' ? 'endedByTime' : 'releasedByTime')
          }
        })
      }
    },

    async close(grace) {
      for (let found = 1; found > 0; ) {
        await world.commits(async (tx, saw) => {
          const closing = { tx, limiterOf, limit: 40, ...(grace ? { grace } : {}) }
          const closed = await closePeriods(quota, closing)
          found = closed.length
          saw('closed', found)
          for (const { key, ...ended } of closed) await writeEnded(tx, key, ended)
        })
      }
    },
  }
}

/** A plan of the sort. Its size changes, and of one sort its periods too. */
function planOf(sort: Customer['sort'], whole: World['whole']): Limiter {
  const tokens = [30, 60, 1000][whole(3)] as number
  const rollover = whole(2) > 0 ? { rollover: { max: tokens / 2 } } : {}
  if (sort === 'fixed') return Ratelimit.fixedWindow(tokens, '20d')
  if (sort === 'month') return calendarWindow(tokens, 'month', { timeZone: 'Asia/Tokyo' })
  if (sort === 'anchored') {
    const anchor = new Date('2025-10-31T10:15:00Z')
    return calendarWindow(tokens, 'month', { timeZone: 'Europe/Berlin', anchor, ...rollover })
  }
  const period = (['day', 'week', 'month', 'year'] as const)[whole(4)] ?? 'day'
  return calendarWindow(tokens, period, { timeZone: whole(2) ? 'UTC' : 'America/New_York', ...rollover })
}
