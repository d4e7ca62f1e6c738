// Simulates a quarter in a few seconds: three organisations with plans, and a fourth that also buys credits. It
// prints every period and its invoice, and draws what was used against what was bought. `invoice.ts`
// has one month of one customer, with crashes, corrections and an invoice in euros.

import { writeFile } from 'node:fs/promises'
import { PGlite } from '@electric-sql/pglite'
import Table from 'cli-table3'
import { doublePrecision, integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pglite'
import { type EndedPeriod, type Limiter, Ratelimit, tableSql } from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import {
  type ClosedPeriod,
  closePeriods,
  prorate,
  Quota,
  spend,
  type Threshold,
} from 'drizzle-ratelimit/quota'
import { type CreditLook, drawCredits } from './pictures/credits.ts'
import { drawUsage, type Look } from './pictures/usage.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const QUARTER = { from: Date.UTC(2026, 0, 1), to: Date.UTC(2026, 3, 1) }
const UPGRADE = new Date('2026-02-24T12:00:00Z')
const NEW_YORK = { timeZone: 'America/New_York', anchor: new Date('2025-10-31T09:00:00-04:00') }
const BERLIN = { timeZone: 'Europe/Berlin' }

let now = QUARTER.from

const mails = pgTable('mails', {
  org: text().notNull(),
  about: text().notNull(),
  queued: timestamp({ withTimezone: true }).notNull(),
})
/** An id of their own: after a change from a month to a year and back, two periods may have one start. */
const invoices = pgTable('invoices', {
  org: text().notNull(),
  start: timestamp({ withTimezone: true }).notNull(),
  end: timestamp({ withTimezone: true }).notNull(),
  used: doublePrecision().notNull(),
  billedBy: text('billed_by').notNull(),
})
/** The primary key is the payment's own id: each payment is granted once. */
const payments = pgTable('payments', {
  id: text().primaryKey(),
  org: text().notNull(),
  credits: integer().notNull(),
  paid: timestamp({ withTimezone: true }).notNull(),
})
const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
await client.exec(`
  create table mails (org text not null, about text not null, queued timestamptz not null);
  create table invoices (id serial primary key, org text not null, start timestamptz not null,
    "end" timestamptz not null, used double precision not null, billed_by text not null);
  create table payments (id text primary key, org text not null, credits integer not null, paid timestamptz not null)`)
const db = drizzle({ client })

const quota = new Quota({
  db,
  limiter: calendarWindow(0, 'month'), // without a plan: nothing
  prefix: 'billing',
  durable: true,
  thresholds: [0.8, 1],
  keepEnded: true,
  clock: () => new Date(now),
})

/** Bought on top of a quota. */
const credits = new Credits({
  db,
  prefix: 'billing-credits',
  durable: true,
  thresholds: [{ left: 250 }],
  clock: () => new Date(now),
})

interface Customer {
  readonly name: string
  readonly about: string
  readonly timeZone: string
  plan(): Limiter
}

interface Org extends Customer {
  /** Does the work of some hours. Returns whether it was denied. */
  work(org: Org, busy: number): Promise<boolean>
}

const orgs: readonly Org[] = [
  {
    name: 'Aster',
    about: 'requests; denied from 22 February on, upgraded on the 24th: that month has a part of each plan',
    timeZone: 'UTC',
    plan: upgraded,
    work: (org, busy) => charge(org, Math.round(220 * busy * (1 + (now - QUARTER.from) / (25 * DAY_MS)))),
  },
  {
    name: 'Birch',
    about: 'exports; each month begins at 9:00 in New York, and what it leaves is carried over, up to 500',
    timeZone: NEW_YORK.timeZone,
    plan: () => calendarWindow(7800, 'month', { ...NEW_YORK, rollover: { max: 500 } }),
    work: (org, busy) => charge(org, Math.round(175 * busy)),
  },
  {
    name: 'Cedar',
    about:
      'LLM tokens; an estimate is reserved, and what it lacked may become a debt, which ends with the month',
    timeZone: BERLIN.timeZone,
    plan: () => calendarWindow(1_000_000, 'month', BERLIN),
    work: (org, busy) => prompt(org, Math.round(9000 * busy)),
  },
]

/** The plan of a customer who upgrades in the middle of a month. */
function upgraded(): Limiter {
  const [before, after] = [calendarWindow(20_000, 'month'), calendarWindow(50_000, 'month')]
  if (now < +UPGRADE) return before
  const { limiter, end } = prorate(before, after, UPGRADE)
  return now < end ? limiter : after
}

const dahlia: Customer = {
  name: 'Dahlia',
  about:
    'images; 3,000 a month are in the plan, and credits that were bought pay for the rest until they are used',
  timeZone: 'UTC',
  plan: () => calendarWindow(3000, 'month'),
}

/** Charges, bills the last period, and queues the mails for crossed thresholds in one transaction. */
async function charge(org: Org, rate: number): Promise<boolean> {
  return db.transaction(async (tx) => {
    const answer = await quota.limit(org.name, { rate, limiter: org.plan(), tx })
    if (answer.success) {
      await bill(tx, org.name, answer.ended, 'the next call')
      await warn(tx, org.name, answer.crossed)
    }
    return !answer.success
  })
}

/**
 * Reserves an estimate, and settles the actual cost. Either may be the first call of a month, so both bill the
 * last one. An estimate crosses no threshold, so only the settling warns.
 */
async function prompt(org: Org, tokens: number): Promise<boolean> {
  const isBatch = new Date(now).getUTCDay() === 5 && new Date(now).getUTCHours() > 12
  const estimate = isBatch ? 4 * tokens : tokens
  const reserved = await db.transaction(async (tx) => {
    const answer = await quota.reserve(org.name, { rate: estimate, limiter: org.plan(), tx })
    if (answer.success) await bill(tx, org.name, answer.ended, 'the next call')
    return answer
  })
  if (!reserved.success) return true
  const actual = run(tokens, isBatch)
  await db.transaction(async (tx) => {
    // The plan may have changed since.
    const settled = await reserved.commit(actual, { limiter: org.plan(), tx })
    await bill(tx, org.name, settled.ended, 'the next call')
    await warn(tx, org.name, settled.crossed)
  })
  return false
}

/** What a prompt takes. On Fridays a batch takes far more than was estimated. One that fails takes nothing. */
function run(tokens: number, isBatch: boolean): number {
  if (random() < 0.05) return 0
  return isBatch ? 24 * tokens : Math.round(tokens * (0.5 + random()))
}

/** Takes what the month has, and the rest from the credits. Returns what each gave: nothing after a denial. */
async function render({ name, plan }: Customer, images: number): Promise<readonly number[]> {
  return db.transaction(async (tx) => {
    const month = { ratelimit: quota, key: name, limiter: plan() }
    const spent = await spend([month, { ratelimit: credits, key: name }], { rate: images, tx })
    for (const answer of spent.results) {
      if (!spent.success || !answer.success) continue
      await bill(tx, name, answer.ended, 'the next call')
      await warn(tx, name, answer.crossed)
    }
    return spent.granted
  })
}

/** What the payment provider calls, more than once if it is not sure that it was heard. */
async function paid({ name }: Customer, payment: { id: string; credits: number }): Promise<boolean> {
  return db.transaction(async (tx) => {
    const row = { ...payment, org: name, paid: new Date(now) }
    const inserted = await tx.insert(payments).values(row).onConflictDoNothing().returning()
    if (inserted.length > 0) await credits.grant(name, payment.credits, { tx })
    return inserted.length > 0
  })
}

async function warn(tx: Pick<typeof db, 'insert'>, org: string, crossed: readonly Threshold[] = []) {
  for (const threshold of crossed) {
    const about =
      typeof threshold === 'number' ? percent(threshold) : `${threshold.left ?? threshold.used} credits left`
    await tx.insert(mails).values({ org, about, queued: new Date(now) })
  }
}

async function bill(
  tx: Pick<typeof db, 'insert'>,
  org: string,
  ended: EndedPeriod | undefined,
  billedBy: string,
) {
  if (!ended) return
  const [start, end] = [new Date(ended.start), new Date(ended.end)]
  await tx.insert(invoices).values({ org, start, end, used: ended.used, billedBy })
}

/**
 * Bills the periods that have ended without another call. Each bill has a transaction of its own: one that
 * fails stops no other, and its period stays for the next run.
 */
async function closeAll() {
  const limiterOf = (key: string) => customerOf(key)?.plan() ?? Ratelimit.unlimited()
  const failed: Error[] = []
  let after: string | undefined
  do {
    const closed: ClosedPeriod[] = []
    try {
      await db.transaction(async (tx) => {
        closed.push(...(await closePeriods(quota, { tx, limiterOf, limit: 1, after })))
        for (const { key, ...ended } of closed) await bill(tx, key, ended, 'closePeriods')
      })
    } catch (cause) {
      if (!closed[0]) throw cause
      failed.push(new Error(`${closed[0].key} was not billed.`, { cause }))
    }
    after = closed[0]?.key
  } while (after !== undefined)
  if (failed.length > 0) throw new AggregateError(failed, `${failed.length} customers were not billed.`)
}

function customerOf(key: string): Customer | undefined {
  return [...orgs, dahlia].find(({ name }) => name === key)
}

/** The same random numbers in every run. */
let seed = 33
function random(): number {
  seed = (seed * 16_807) % 2_147_483_647
  return seed / 2_147_483_647
}

/** Sets the clock to one working hour after the other. Says how busy the day is. */
function* workingHours(): Generator<number> {
  for (let day = QUARTER.from; day < QUARTER.to; day += DAY_MS) {
    for (const hour of [10, 16]) {
      now = day + hour * HOUR_MS
      yield [0, 6].includes(new Date(day).getUTCDay()) ? 0.3 : 1
    }
  }
}

async function look({ name, plan }: Customer, denied: boolean): Promise<Look> {
  const { start = 0, reset, limit, used } = await quota.getRemaining(name, { limiter: plan() })
  return { time: now, start, end: reset, limit, used, denied }
}

const looks = new Map<Org, Look[]>(orgs.map((org) => [org, []]))
for (const busy of workingHours()) {
  for (const [org, found] of looks) {
    const denied = await org.work(org, busy * (0.5 + random()))
    found.push(await look(org, denied))
  }
}

const TOP_UPS = [
  { id: 'payment-1', credits: 1000, at: Date.UTC(2026, 0, 20, 10) },
  { id: 'payment-2', credits: 2000, at: Date.UTC(2026, 1, 24, 16) },
]
const creditLooks: CreditLook[] = []
for (const busy of workingHours()) {
  for (const { at, ...payment } of TOP_UPS) {
    // The payment provider says it twice.
    if (at === now) for (const _ of [1, 2]) await paid(dahlia, payment)
  }
  const granted = await render(dahlia, Math.round(90 * busy * (0.5 + random())))
  const found = await look(
    dahlia,
    granted.every((units) => units === 0),
  )
  const before = creditLooks.at(-1)
  const paidBefore = before?.start === found.start ? before.paidByCredits : 0
  const { remaining } = await credits.getRemaining(dahlia.name)
  creditLooks.push({ ...found, paidByCredits: paidBefore + (granted[1] ?? 0), credits: remaining })
}
now = Date.UTC(2026, 4, 1)
await closeAll()
const queued = await db.select().from(mails).orderBy(mails.queued)
const billed = await db.select().from(invoices).orderBy(invoices.org, invoices.start)
const topUps = await db.select().from(payments).orderBy(payments.paid)
await client.close()

const table = new Table({
  head: ['', 'period, local time', 'quota', 'used', '', 'denied', 'mails queued'],
  colAligns: ['left', 'left', 'right', 'right', 'right', 'right', 'left'],
  style: { head: [], border: [] },
})
for (const [org, found] of looks) {
  const lastOnes = found.filter(({ start }, i) => found[i + 1]?.start !== start)
  for (const { start, end, limit, used } of lastOnes) {
    const denied = found.filter((look) => look.start === start && look.denied)
    table.push([
      org.name,
      `${local(start, org)} to ${local(end, org)}`,
      ...[limit.toLocaleString('en'), used.toLocaleString('en'), percent(used / limit), denied.length],
      mailsIn(org, { start, end }),
    ])
  }
}
console.log(table.toString())
const lines = new Table({
  head: ['invoice', 'period, local time', 'used', 'billed by'],
  colAligns: ['left', 'left', 'right', 'left'],
  style: { head: [], border: [] },
})
for (const { org, start, end, used, billedBy } of billed) {
  const found = customerOf(org)
  if (!found) continue
  lines.push([org, `${local(+start, found)} to ${local(+end, found)}`, used.toLocaleString('en'), billedBy])
}
console.log(lines.toString())
const prepaid = new Table({
  head: [dahlia.name, 'of the month', 'of the credits', 'denied', 'credits left', 'top-ups', 'mails queued'],
  colAligns: ['left', 'right', 'right', 'right', 'right', 'left', 'left'],
  style: { head: [], border: [] },
})
for (const [place, found] of creditLooks.entries()) {
  const { start, end, used, paidByCredits, credits } = found
  if (creditLooks[place + 1]?.start === start) continue
  prepaid.push([
    `${local(start, dahlia)} to ${local(end, dahlia)}`,
    ...[used, paidByCredits].map((units) => units.toLocaleString('en')),
    creditLooks.filter((each) => each.start === start && each.denied).length,
    credits.toLocaleString('en'),
    topUps
      .filter(({ paid }) => +paid >= start && +paid < end)
      .map((each) => `${each.credits.toLocaleString('en')} on ${local(+each.paid, dahlia)}`)
      .join('\n'),
    mailsIn(dahlia, { start, end }),
  ])
}
console.log(prepaid.toString())

const usages = [...looks].map(([org, found]) => ({
  ...{ name: org.name, about: org.about, looks: found, mails: mailsOf(org).map((mail) => +mail.queued) },
  local: (time: number) => local(time, org),
}))
await writeFile(new URL('billing.svg', import.meta.url), drawUsage(usages, QUARTER.to))
const creditUsage = {
  ...{ about: dahlia.about, looks: creditLooks, local: (time: number) => local(time, dahlia) },
  topUps: topUps.map(({ paid, credits }) => ({ time: +paid, credits })),
}
await writeFile(new URL('credits.svg', import.meta.url), drawCredits(creditUsage, QUARTER.to))
console.log('\nThe same as pictures: examples/billing.svg and examples/credits.svg')

function mailsOf({ name }: Customer) {
  return queued.filter(({ org }) => org === name)
}

function mailsIn(customer: Customer, { start, end }: Pick<Look, 'start' | 'end'>): string {
  return mailsOf(customer)
    .filter(({ queued }) => +queued >= start && +queued < end)
    .map(({ about, queued }) => `${about} on ${local(+queued, customer)}`)
    .join('\n')
}

function local(time: number, { timeZone }: Customer): string {
  const parts = { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' } as const
  return new Intl.DateTimeFormat('en-GB', { timeZone, ...parts }).format(time)
}

function percent(share: number): string {
  return `${Math.floor(share * 100)} %`
}
