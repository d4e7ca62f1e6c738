import { readFile } from 'node:fs/promises'
import type { Credits } from 'drizzle-ratelimit/credits'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Allowed, type Limiter, type LimitResult, Ratelimit } from '../../../src/index.ts'
import { Quota, spend } from '../../../src/quota/index.ts'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import * as app from '../../support/docs-app.ts'
import { tell } from '../../support/happened.ts'
import { recipeOn } from '../../support/recipes.ts'
import { undone } from '../../support/undone.ts'

// Recipes of docs/quota-recipes.md and docs/cost-recipes.md as they stand there, each in two processes at once.

let database: TestDatabase
const ends: (() => Promise<void>)[] = []
beforeAll(async () => {
  database = await emptyDatabase()
  await migrate(database)
  await database.script(app.TABLES_SQL)
})
afterAll(async () => {
  await Promise.all(ends.map((end) => end()))
  await database.close()
  await app.db.$client.close()
})

/** The recipe, in two processes. */
async function twoProcesses<Exports>(
  heading: string,
  pages?: () => Promise<string>,
): Promise<[Exports, Exports]> {
  const both = await Promise.all([
    recipeOn<Exports>(database.url, heading, pages),
    recipeOn<Exports>(database.url, heading, pages),
  ])
  ends.push(...both.map(({ end }) => end))
  return both
}

async function newOrg(id: string): Promise<void> {
  await database.rows(`insert into orgs (id, plan, since, time_zone) values ($1, 'team', now(), 'UTC')`, [id])
}

test('streams of a model, which end, break and are left open', async () => {
  const processes = await twoProcesses<{
    meter(
      org: string,
      model: string,
      size: { readonly prompt: number; readonly answer: number },
    ): Promise<{ end(used: number): Promise<void> }>
    month: Quota
    provider: Quota
    settleLost(): Promise<void>
  }>('The limits', () => readFile('docs/llm.md', 'utf8'))
  const [{ month, provider, settleLost }] = processes
  const before = 970_000
  await month.limit('streams', { rate: before })
  let paid = 0
  let open = 0
  const streaming = async (call: number) => {
    const { meter } = processes[call % 2] as (typeof processes)[0]
    const stream = await meter(`streams`, `model ${call % 3}`, { prompt: 10, answer: 990 }).catch(
      (error) => error,
    )
    if (!('end' in stream)) {
      if (!(stream instanceof app.QuotaExceeded)) throw stream
      return tell('streams', 'denied')
    }
    expect((await month.getRemaining('streams')).used).toBeLessThanOrEqual(1_000_000)
    if (call % 7 === 0) {
      open++
      return tell('streams', 'left open')
    }
    const used = Math.floor(Math.random() * 1000)
    paid += used
    // A client that goes away while the stream ends.
    await Promise.all([stream.end(used), stream.end(0)])
    tell('streams', 'settled')
  }
  for (let wave = 0; wave < 4; wave++)
    await Promise.all(Array.from({ length: 30 }, (_, call) => streaming(call)))
  expect((await month.getRemaining('streams')).used).toBe(before + paid + 1000 * open)
  await settleLost()
  expect((await month.getRemaining('streams')).used).toBe(before + paid + 1000 * open)
  expect((await provider.getRemaining('model 0')).used).toBeGreaterThan(0)
})

test('estimates and known costs, from the month and the credits', async () => {
  const processes = await twoProcesses<{
    ask(org: string, prompt: string): Promise<void>
    month: Quota
    credits: Credits
  }>('An estimate, first from the month, then from the credits')
  const [{ month, credits }] = processes
  await credits.grant('org', 3000)

  // A prompt of 10 letters is estimated at 40. A failed completion is not stored, and its estimate stays.
  let paid = 0
  const thinking = vi.spyOn(app.llm, 'complete').mockImplementation(async () => {
    const tokens = Math.floor(Math.random() * 90)
    paid += tokens
    return { text: '', tokens }
  })
  const asking = async (call: number) => {
    const { ask } = processes[call % 2] as (typeof processes)[0]
    const error = await ask('org', 'x'.repeat(10)).catch((thrown: Error) => thrown)
    if (error && !(error instanceof app.QuotaExceeded)) throw error
    tell('estimates', error ? 'denied' : 'settled')
  }
  const spending = async (call: number) => {
    const { month: first, credits: second } = processes[call % 2] as (typeof processes)[0]
    const requests = [first, second].map((ratelimit) => ({ ratelimit, key: 'org' }))
    const { success } = await spend(requests, { rate: 7 })
    if (success) paid += 7
  }
  for (let wave = 0; wave < 6; wave++) {
    await Promise.all(
      Array.from({ length: 40 }, (_, call) => (call % 4 ? asking(call) : spending(call >> 2))),
    )
  }
  thinking.mockRestore()
  const [ofMonth, ofCredits] = [await month.getRemaining('org'), await credits.getRemaining('org')]
  expect(ofMonth.used).toBe(1000)
  expect(ofMonth.used + ofCredits.used).toBe(paid)
})

/** Each of some messages is delivered by both processes, twice. */
async function deliverAll<Message, Exports>(
  processes: readonly Exports[],
  messages: readonly Message[],
  deliver: (process: Exports, message: Message) => Promise<unknown>,
): Promise<unknown[]> {
  const deliveries = [...messages, ...messages].flatMap((message) =>
    processes.map((process) => deliver(process, message).catch((error: unknown) => error)),
  )
  return Promise.all(deliveries)
}

test('charges, top-ups and costs that are delivered four times', async () => {
  const charges = await twoProcesses<{
    deliver(event: { id: string; org: string; units: number }): Promise<string>
    units: Quota
  }>('A charge that is delivered twice')
  const events = Array.from({ length: 30 }, (_, id) => ({ id: `event ${id}`, org: 'org', units: 40 }))
  const told = await deliverAll(charges, events, ({ deliver }, event) => deliver(event))
  // 25 of 30 fit. What was denied is delivered again, and denied again.
  expect(told.filter((each) => each === 'charged')).toHaveLength(25)
  expect(told.filter((each) => each === 'known')).toHaveLength(75)
  expect(told.filter((each) => each instanceof app.QuotaExceeded)).toHaveLength(20)
  expect(await charges[0].units.getRemaining('org')).toMatchObject({ used: 1000 })

  const topUps = await twoProcesses<{
    paid(payment: { id: string; org: string; credits: number }): Promise<void>
    wallet: Credits
  }>('Credits that top themselves up')
  const payments = Array.from({ length: 20 }, (_, id) => ({ id: `payment ${id}`, org: 'org', credits: 5 }))
  await deliverAll(topUps, payments, ({ paid }, payment) => paid(payment))
  expect(await topUps[0].wallet.getRemaining('org')).toMatchObject({ limit: 100 })

  const films = await twoProcesses<{
    film(org: string, script: string): Promise<void>
    filmed(told: { reference: string; length: number }): Promise<Allowed>
    seconds: Quota
  }>('A cost that a webhook reports')
  const filming = vi.spyOn(app.studio, 'film')
  await Promise.all(Array.from({ length: 20 }, (_, place) => films[place % 2]?.film('org', 'x'.repeat(100))))
  const references = filming.mock.calls.map(([, { reference }]) => reference)
  filming.mockRestore()
  const settled = await deliverAll(films, references, ({ filmed }, reference) =>
    filmed({ reference, length: 7 }),
  )
  expect(settled.filter((each) => !(each as Allowed).repeated)).toHaveLength(20)
  expect(await films[0].seconds.getRemaining('org')).toMatchObject({ used: 140 })
  tell('messages', 'delivered', told.length + 80 + 80)
})

test('warnings under a load of denials', async () => {
  const processes = await twoProcesses<{ send(org: string, rate: number): Promise<void>; sent: Quota }>(
    'A warning mail at 80 %',
  )
  for (const [org, rate] of Object.entries({ sevens: 7, ones: 1 })) {
    const sending = Array.from({ length: 150 / rate }, (_, call) => processes[call % 2]?.send(org, rate))
    const refused = (await Promise.allSettled(sending)).filter(({ status }) => status === 'rejected')
    expect(refused.length).toBe(Math.floor(150 / rate) - Math.floor(100 / rate))
    const mails = await database.rows('select share, quota from mails where org = $1 order by share', [org])
    expect(mails).toEqual([
      { share: 0.8, quota: 100 },
      { share: 1, quota: 100 },
    ])
  }
})

test('a plan that changes while charges of the old one wait', async () => {
  const processes = await twoProcesses<{
    exported: Quota
    exportRows(org: string, rate: number): Promise<LimitResult>
    move(org: string, to: app.Plan): Promise<void>
  }>('A bucket that keeps what was used')
  for (let customer = 0; customer < 20; customer++) {
    const org = `bucket ${customer}`
    await newOrg(org)
    const [one, other] = customer % 2 ? processes : processes.toReversed()
    const moving = async () => {
      await Promise.all([one?.move(org, 'business'), other?.move(org, 'business')])
    }
    const calls = Array.from({ length: 10 }, (_, call) => (call % 2 ? one : other)?.exportRows(org, 1))
    calls.splice(customer % 10, 0, moving() as never)
    const answers = await Promise.all(calls)
    const allowed = answers.filter((answer) => answer?.success).length
    tell('charges next to a move', 'allowed', allowed)
    const limiter = Ratelimit.tokenBucket(1, '1h', 100)
    expect(await processes[0].exported.getRemaining(org, { limiter })).toMatchObject({ used: allowed })
    const back = [one?.move(org, 'team'), other?.exportRows(org, 1), other?.move(org, 'team')]
    const more = (await Promise.all(back))[1]?.success ? 1 : 0
    expect(await processes[0].exported.getRemaining(org)).toMatchObject({ used: allowed + more })
  }
})

test('a subscription by the year, whose month and year end during the calls', async () => {
  const processes = await twoProcesses<{
    reports: Quota
    report(org: app.Org, pages: number): Promise<number>
  }>('A monthly plan, with an upgrade in the middle')
  const end = Date.now() + 1500
  const since = new Date(end)
  since.setUTCFullYear(since.getUTCFullYear() - 1)
  const org = { id: 'yearly', plan: 'team', since, timeZone: 'UTC' } as app.Org
  const limiter = calendarWindow(1000, 'month', { timeZone: 'UTC', anchor: since })
  const charged = new Map<number, number>()
  for (let round = 0; Date.now() < end + 300; round++) {
    const once = { id: `report ${round}`, for: '1d' } as const
    const calls = processes.map(({ reports }) => reports.limit(org.id, { rate: 3, limiter, once }))
    await undone(database.db, async (tx) => {
      await processes[round % 2 ? 1 : 0].reports.limit(org.id, { rate: 5, limiter, tx })
    })
    // Both have one id, so one of them has paid.
    const answers = await Promise.all(calls)
    const paid = answers.flatMap((answer) => (answer.success && !answer.repeated ? [answer] : []))
    for (const { start = 0 } of paid) charged.set(start, (charged.get(start) ?? 0) + 3)
    expect(paid.length).toBeLessThanOrEqual(1)
  }
  const used = async () => (await processes[0].reports.getRemaining(org.id, { limiter })).used
  expect(charged.size).toBe(2)
  expect(Math.max(...charged.keys())).toBe(end)
  expect(Math.max(...charged.values())).toBeLessThanOrEqual(1000)
  expect(await used()).toBe(charged.get(end))
  const left = 1000 - (await used())
  // What is left is shared, and neither process grants more.
  const last = await Promise.allSettled(
    Array.from({ length: 20 }, (_, call) => processes[call % 2 ? 1 : 0].report(org, Math.ceil(left / 10))),
  )
  const granted = last.filter(({ status }) => status === 'fulfilled').length * Math.ceil(left / 10)
  expect(await used()).toBe(1000 - left + granted)
  expect(granted).toBeGreaterThan(left - Math.ceil(left / 10))
  tell('a subscription by the year', 'units', granted)
})

test('a customer who changes the zone during the calls', async () => {
  const processes = await twoProcesses<{
    lookup(org: string): Promise<LimitResult>
    relocate(org: string, timeZone: string): Promise<string>
  }>('A time zone that the customer may change')
  await newOrg('wanders')
  let calls = 0
  for (let wave = 0; wave < 12; wave++) {
    await Promise.all(
      Array.from({ length: 24 }, async (_, place) => {
        const { lookup, relocate } = processes[place % 2] as (typeof processes)[0]
        if (place % 3 === 0) {
          const hours = ((wave * 24 + place) % 25) - 12
          tell('changes of the zone', await relocate('wanders', `Etc/GMT${hours < 0 ? hours : `+${hours}`}`))
        } else if ((await lookup('wanders')).success) calls++
      }),
    )
  }
  // The date of the first call, and another one if a midnight has passed.
  expect([10, 20]).toContain(calls)
})

interface Invoicing {
  prints: Quota
  print(org: string, pages: number): Promise<void>
  closeMonths(): Promise<void>
}

/** A time in the last month. */
function inLastMonth(): Date {
  const now = new Date()
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 3))
}

const MONTHLY = calendarWindow(1000, 'month')
/** Its year began with the last month. */
const YEARLY = calendarWindow(1000, 'year', {
  anchor: new Date(Date.UTC(inLastMonth().getUTCFullYear() - 1, inLastMonth().getUTCMonth())),
})

/** Prints of the last month under a plan, by a clock that is still there. */
async function printedLastMonth(pages: Readonly<Record<string, number>>, limiter: Limiter): Promise<void> {
  const options = { prefix: 'prints', durable: true, keepEnded: true, clock: inLastMonth } as const
  const prints = new Quota({ db: database.db, limiter: MONTHLY, ...options })
  await Promise.all(Object.entries(pages).map(([org, rate]) => prints.limit(org, { rate, limiter })))
}

/** The lines of some customers, of months that began at the same time. */
async function linesOf(orgs: string): Promise<string[]> {
  const ofOrgs = 'select org, used, start from invoice_lines where org like $1 order by org, used'
  const rows = await database.rows(ofOrgs, [orgs])
  expect(new Set(rows.map(({ start }) => Number(start))).size).toBeLessThanOrEqual(1)
  return rows.map(({ org, used }) => `${org} ${used}`)
}

/** Many jobs of both processes at once. Returns what they reported. */
async function jobs(processes: readonly Invoicing[]): Promise<unknown[]> {
  const runs = await Promise.allSettled([...processes, ...processes].map(({ closeMonths }) => closeMonths()))
  return runs.flatMap((run) => (run.status === 'rejected' ? [run.reason] : []))
}

test('months that are closed by several jobs at once, while customers come back', async () => {
  const processes = await twoProcesses<Invoicing>('An invoice for each month')
  const pages = Object.fromEntries(Array.from({ length: 200 }, (_, org) => [`stays ${1000 + org}`, 1 + org]))
  await printedLastMonth(pages, MONTHLY)
  const comingBack = Object.keys(pages).filter((_, place) => place % 2 === 0)
  const prints = comingBack.flatMap((org) => processes.map(({ print }) => print(org, 3)))
  const [reports] = await Promise.all([jobs(processes), ...prints])
  expect(reports).toEqual([])
  // A job leaves what a print has locked, and the print bills it.
  expect(await linesOf('stays %')).toEqual(Object.entries(pages).map(([org, used]) => `${org} ${used}`))
  const looks = await processes[0].prints.getRemainingAll(comingBack)
  expect(looks.map(({ used }) => used)).toEqual(comingBack.map(() => 6))
  tell('months', 'billed by jobs and prints at once', Object.keys(pages).length)
})

test('customers who moved from the month to the year and back around one start', async () => {
  const processes = await twoProcesses<Invoicing>('An invoice for each month')
  const orgs = Array.from({ length: 20 }, (_, org) => `moves ${100 + org}`)
  const each = (pages: number) => Object.fromEntries(orgs.map((org) => [org, pages]))
  await printedLastMonth(each(5), MONTHLY)
  expect(await jobs(processes)).toEqual([])
  await printedLastMonth(each(7), YEARLY)
  const prints = orgs.slice(10).flatMap((org) => processes.map(({ print }) => print(org, 2)))
  const [reports] = await Promise.all([jobs(processes), ...prints])
  expect(reports).toEqual([])
  expect(await linesOf('moves %')).toEqual(orgs.flatMap((org) => [`${org} 5`, `${org} 7`]))
  tell('months', 'billed next to a year of the same start', orgs.length)
})

test.each([
  { when: 'at once', deferred: '' },
  { when: 'when they are committed', deferred: 'deferrable initially deferred' },
])('bills that fail $when leave the others to be billed', async ({ when, deferred }) => {
  const processes = await twoProcesses<Invoicing>('An invoice for each month')
  const pages = Object.fromEntries(
    Array.from({ length: 60 }, (_, org) => [
      `${org % 7 === 0 ? 'fails' : 'fits'} ${when} ${100 + org}`,
      1 + org,
    ]),
  )
  await printedLastMonth(pages, MONTHLY)
  await database.script(`
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no address'; end $$;
    create constraint trigger refusing after insert on invoice_lines ${deferred} for each row
      when (new.org like 'fails%') execute function refuse()`)
  const reports = await jobs(processes)
  await database.script('drop function refuse cascade')

  const line = ([org, used]: readonly [string, number]) => `${org} ${used}`
  const [failing, fitting] = ['fails', 'fits'].map((start) =>
    Object.entries(pages).filter(([org]) => org.startsWith(start)),
  ) as [[string, number][], [string, number][]]
  expect(await linesOf(`fits ${when} %`)).toEqual(fitting.map(line))
  expect(await linesOf(`fails ${when} %`)).toEqual([])
  // Of two jobs that meet at a row, one leaves it. So each customer is in the report of at least one.
  const told = reports.flatMap((report) => (report as AggregateError).errors.map(({ message }) => message))
  expect([...new Set(told)].toSorted()).toEqual(failing.map(([org]) => `${org} was not billed.`))
  tell('bills', `that fail ${when}`, failing.length)

  // Nothing was charged or lost. The next run bills them.
  expect(await jobs(processes)).toEqual([])
  expect(await linesOf(`fails ${when} %`)).toEqual(failing.map(line))
})
