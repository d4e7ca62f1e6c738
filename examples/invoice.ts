// September of one customer who renders pages, with a rollback, events that come twice, processes that die, a
// free gift that ends, a payment that is taken back, a plan that changes, and a cost that is known too late. At
// the end every page is on the invoice once.

import { PGlite } from '@electric-sql/pglite'
import { eq, sum } from 'drizzle-orm'
import { integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pglite'
import { type Duration, tableSql } from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { closePeriods, Quota, settleExpired, spend } from 'drizzle-ratelimit/quota'

const [TEAM, BUSINESS] = [calendarWindow(1000, 'month'), calendarWindow(12_000, 'year')]
const CENTS = { month: 3000, year: 30_000, page: 5, credit: 10 }
const NO_LIMIT = calendarWindow(Number.POSITIVE_INFINITY, 'month')
const ORG = 'elder'

/** What was done for the customer. */
const deliveries = pgTable('deliveries', { id: text().notNull(), pages: integer().notNull() })
/** What was charged, as the limiters report it. */
const entries = pgTable('entries', { prefix: text().notNull(), pages: integer().notNull() })
/** What is billed: a period of a quota, and the corrections to it. */
const lines = pgTable('lines', {
  quota: text().notNull(),
  start: timestamp({ withTimezone: true }).notNull(),
  end: timestamp({ withTimezone: true }).notNull(),
  pages: integer().notNull(),
})
const payments = pgTable('payments', { id: text().primaryKey(), cents: integer().notNull() })

class Failed extends Error {}

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
await client.exec(`
  create table deliveries (id text not null, pages integer not null);
  create table entries (prefix text not null, pages integer not null);
  create table lines (quota text not null, start timestamptz not null, "end" timestamptz not null,
    pages integer not null);
  create table payments (id text primary key, cents integer not null)`)
const db = drizzle({ client })
type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0]

let now = 0
let plan = TEAM
const common = { db, durable: true, clock: () => new Date(now) } as const
const billed = {
  ...common,
  keepEnded: true,
  grace: '1d',
  use: [
    ledger((tx: Tx, made: readonly Entry[]) =>
      tx.insert(entries).values(made.map(({ prefix, units }) => ({ prefix, pages: units }))),
    ),
  ],
} as const
/** First come the pages of the plan, then credits, and then pages that are paid one by one. */
const included = new Quota({
  ...billed,
  limiter: TEAM,
  prefix: 'included',
  thresholds: [{ left: 100 }],
})
const credits = new Credits({ ...common, dated: true, keep: '400d', prefix: 'credits' })
const extra = new Quota({ ...billed, limiter: NO_LIMIT, prefix: 'extra' })

/**
 * Renders pages, and charges what the plan has, then the credits, then extra pages: all of it, or nothing. An
 * event that comes twice is charged once.
 */
async function render(event: string, pages: number, fails = false): Promise<void> {
  const sources = [
    { ratelimit: included, key: ORG, limiter: plan },
    { ratelimit: credits, key: ORG },
    { ratelimit: extra, key: ORG },
  ] as const
  await db
    .transaction(async (tx) => {
      const spent = await spend(sources, { rate: pages, once: { id: event, for: '35d' }, tx })
      if (!spent.success) throw new Error('there are always extra pages')
      if (spent.repeated) return say(`${event} came again: nothing is charged`)
      const [month, , more] = spent.results
      if (month?.success) await bill(tx, 'included', month.ended)
      if (more?.success) await bill(tx, 'extra', more.ended)
      await tx.insert(deliveries).values({ id: event, pages })
      if (fails) throw new Failed(`${event} has failed: all of it is undone`)
      if (month?.success && month.crossed) say('a mail: 100 pages are left')
      say(`${event}: ${pages} pages, ${spent.granted[2]} of them extra`)
    })
    .catch((error) => {
      if (!(error instanceof Failed)) throw error
      say(error.message)
    })
}

/** Work of which the cost is known at its end. Any process can settle the estimate by its name. */
async function begin(id: string, estimate: number, expires: Duration = '8d'): Promise<void> {
  await db.transaction(async (tx) => {
    const reserved = await included.reserve(ORG, { rate: estimate, id, expires, limiter: plan, tx })
    if (!reserved.success) throw new Error('too few pages')
    await bill(tx, 'included', reserved.ended)
  })
  say(`${id} begins: an estimate of ${estimate} pages`)
}

/** Settles the estimate once, however often it is called. */
async function finish(id: string, pages: number): Promise<void> {
  await db.transaction(async (tx) => {
    const settled = await included.settle({ key: ORG, id }, pages, { limiter: plan, tx })
    if (settled.repeated) return say(`${id} was settled before: nothing is charged`)
    await bill(tx, 'included', settled.ended)
    await bill(tx, 'included', settled.correction)
    await tx.insert(deliveries).values({ id, pages })
    const late = settled.correction ? `, a correction of ${settled.correction.used}` : ''
    say(`${id} ends: ${pages} pages${late}`)
  })
}

/** A timer calls it. It gives back the estimates of work that has not ended in time. */
async function giveBackExpired(): Promise<void> {
  await db.transaction(async (tx) => {
    const expired = await settleExpired(included, { tx, as: 'release', limiterOf: () => plan })
    for (const { id, returned } of expired) say(`${id} has died: ${returned} pages come back`)
  })
}

/** The payment provider calls it until it is answered. The id of the payment grants once. */
async function paid(id: string, bought: number): Promise<void> {
  await db.transaction(async (tx) => {
    const { repeated } = await credits.grant(ORG, bought, { id, tx })
    if (repeated) return say(`${id} came again: nothing is granted`)
    await tx.insert(payments).values({ id, cents: bought * CENTS.credit })
    say(`${id}: ${bought} credits`)
  })
}

/** The customer's bank takes the money back, and the credits that are left of it go too. */
async function chargedBack(id: string): Promise<void> {
  await db.transaction(async (tx) => {
    const left = await credits.voidGrant(ORG, id, { tx })
    await tx.delete(payments).where(eq(payments.id, id))
    say(`${id} is taken back, with ${left} credits`)
  })
}

/** A year instead of a month, from now on. Each of the two has a start and an end of its own. */
async function upgrade(): Promise<void> {
  await db.transaction(async (tx) => {
    await bill(tx, 'included', await included.changePlan(ORG, { from: TEAM, to: BUSINESS, tx }))
  })
  plan = BUSINESS
  say('the plan changes from a month to a year')
}

type Billed = Pick<typeof lines.$inferInsert, 'quota'> & { start: number; end: number; used: number }

async function bill(tx: Tx, quota: string, period: Omit<Billed, 'quota'> | undefined): Promise<void> {
  if (!period) return
  const [start, end] = [new Date(period.start), new Date(period.end)]
  await tx.insert(lines).values({ quota, start, end, pages: period.used })
}

function say(what: string): void {
  console.log(`${new Date(now).toISOString().slice(5, 16).replace('T', ' ')}  ${what}`)
}

/** Sets the clock to a time in September. */
function on(day: number, hour = 10, minute = 0): void {
  now = Date.UTC(2026, 8, day, hour, minute)
}

on(1)
await credits.grant(ORG, 50, { id: 'welcome', expires: '10d', priority: 10 })
await begin('job-0', 40, '4d') // and the process dies, with the work
on(2)
await render('event-1', 400)
on(5)
await render('event-2', 300, true)
await render('event-2', 300)
await render('event-2', 300)
on(5, 12)
await giveBackExpired()
on(8)
await begin('job-1', 200) // and the process dies
await begin('job-2', 100)
on(9)
await finish('job-1', 150) // by another process
await finish('job-1', 150)
on(10)
await render('event-3', 80)
on(12)
await paid('payment-1', 100)
await paid('payment-1', 100)
await render('event-4', 160)
await render('event-4', 160)
on(14)
await paid('payment-2', 30)
await chargedBack('payment-2')
on(16, 0)
await upgrade()
on(16, 0, 30)
await finish('job-2', 80)
on(20)
await render('event-5', 500)
on(32, 0)
await db.transaction(async (tx) => {
  for (const { key: _, ...period } of await closePeriods(extra, { tx })) await bill(tx, 'extra', period)
})

// The invoice.
const euros = (cents: number) => (cents / 100).toFixed(2).padStart(9)
const periods = await db
  .select({ quota: lines.quota, start: lines.start, end: lines.end, pages: sum(lines.pages).mapWith(Number) })
  .from(lines)
  .groupBy(lines.quota, lines.start, lines.end)
  .orderBy(lines.start)
const wholeMonth = Date.UTC(2026, 9, 1) - Date.UTC(2026, 8, 1)
const invoice = periods.map(({ quota, start, end, pages }) => ({
  what: `${quota}, ${start.toISOString().slice(0, 10)} to ${end.toISOString().slice(0, 10)}: ${pages} pages`,
  cents: quota === 'extra' ? pages * CENTS.page : Math.round((CENTS.month * (+end - +start)) / wholeMonth),
}))
const bought = (await db.select().from(payments)).map(({ id, cents }) => ({ what: `credits, ${id}`, cents }))
const all = [...invoice, ...bought, { what: 'a year, from 2026-09-16', cents: CENTS.year }]
console.log()
for (const { what, cents } of all) console.log(what.padEnd(56) + euros(cents))
console.log('total'.padEnd(56) + euros(all.reduce((total, { cents }) => total + cents, 0)))

// What was delivered is what was billed, what the limiters have counted, and what the credits have paid.
const total = (amounts: readonly number[]) => amounts.reduce((all, each) => all + each, 0)
const delivered = total((await db.select().from(deliveries)).map(({ pages }) => pages))
const charged = total((await db.select().from(entries)).map(({ pages }) => pages))
const grants = await credits.grants(ORG)
const byCredits = total(grants.map(({ used }) => used))
const ofYear = (await included.getRemaining(ORG, { limiter: BUSINESS })).used
const onInvoice = total(periods.map(({ pages }) => pages))
console.log(
  `\ndelivered ${delivered} = ${onInvoice} billed + ${byCredits} by credits + ${ofYear} of the year`,
)
console.log(
  `the ledger has ${charged}, the gift has lost ${50 - (grants.find(({ id }) => id === 'welcome')?.used ?? 0)}`,
)
if (delivered !== onInvoice + byCredits + ofYear || charged !== onInvoice + ofYear) process.exitCode = 1
await client.close()
