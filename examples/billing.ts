// Simulates a quarter of three organisations and their plans in a few seconds. It prints every period and its
// invoice, and draws what was used against what was bought.

import { writeFile } from 'node:fs/promises'
import { PGlite } from '@electric-sql/pglite'
import Table from 'cli-table3'
import { doublePrecision, pgTable, text, timestamp } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pglite'
import { closePeriods, type EndedPeriod, type Limiter, Ratelimit, tableSql } from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { type EChartsOption, init } from 'echarts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const QUARTER = { from: Date.UTC(2026, 0, 1), to: Date.UTC(2026, 3, 1) }
const UPGRADE = Date.UTC(2026, 1, 24, 12)
const NEW_YORK = { timeZone: 'America/New_York', anchor: new Date('2025-10-31T09:00:00-04:00') }
const BERLIN = { timeZone: 'Europe/Berlin' }

let now = QUARTER.from

const mails = pgTable('mails', {
  org: text().notNull(),
  share: doublePrecision().notNull(),
  queued: timestamp({ withTimezone: true }).notNull(),
})
/** The primary key is organisation and start: each period is billed once. */
const invoices = pgTable('invoices', {
  org: text().notNull(),
  start: timestamp({ withTimezone: true }).notNull(),
  end: timestamp({ withTimezone: true }).notNull(),
  used: doublePrecision().notNull(),
  billedBy: text('billed_by').notNull(),
})
const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
await client.exec(`
  create table mails (org text not null, share double precision not null, queued timestamptz not null);
  create table invoices (org text, start timestamptz, "end" timestamptz not null, used double precision not null,
    billed_by text not null, primary key (org, start))`)
const db = drizzle({ client })

const quota = new Ratelimit({
  db,
  limiter: calendarWindow(0, 'month'), // without a plan: nothing
  prefix: 'billing',
  durable: true,
  thresholds: [0.8, 1],
  keepEnded: true,
  clock: () => new Date(now),
})

interface Org {
  readonly name: string
  readonly about: string
  readonly timeZone: string
  plan(): Limiter
  /** Does the work of some hours. Returns whether it was denied. */
  work(org: Org, busy: number): Promise<boolean>
}

const orgs: readonly Org[] = [
  {
    name: 'Aster',
    about: 'requests; denied from 22 February on, upgraded on the 24th: what has been used stays',
    timeZone: 'UTC',
    plan: () => calendarWindow(now < UPGRADE ? 20_000 : 50_000, 'month'),
    work: (org, busy) => charge(org, Math.round(220 * busy * (1 + (now - QUARTER.from) / (25 * DAY_MS)))),
  },
  {
    name: 'Birch',
    about: 'exports; since 31 October, 9:00 in New York, so each month begins at 9:00 on its last day',
    timeZone: NEW_YORK.timeZone,
    plan: () => calendarWindow(8000, 'month', NEW_YORK),
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

/** Charges, bills the last period, and queues the mails for crossed thresholds in one transaction. */
async function charge(org: Org, rate: number): Promise<boolean> {
  return db.transaction(async (tx) => {
    const answer = await quota.limit(org.name, { rate, limiter: org.plan(), tx })
    if (answer.success) {
      await bill(tx, org.name, answer.ended, 'the next call')
      await warn(tx, org, answer.crossed)
    }
    return !answer.success
  })
}

/**
 * Reserves an estimate, and settles the actual cost. On Fridays a batch takes far more than was estimated.
 * Sometimes the prompt fails, and the estimate is released.
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
  await warn(db, org, reserved.crossed)
  if (random() < 0.05) await reserved.release()
  else {
    const settled = await reserved.commit(isBatch ? 24 * tokens : Math.round(tokens * (0.5 + random())))
    if (settled.success) await warn(db, org, settled.crossed)
  }
  return false
}

async function warn(tx: Pick<typeof db, 'insert'>, { name }: Org, crossed: readonly number[] = []) {
  for (const share of crossed) await tx.insert(mails).values({ org: name, share, queued: new Date(now) })
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

/** Bills the periods after which nobody has called. */
async function closeAll() {
  const limiterOf = (key: string) => orgs.find(({ name }) => name === key)?.plan() ?? Ratelimit.unlimited()
  await db.transaction(async (tx) => {
    const closed = await closePeriods(tx, { prefix: quota.prefix, limiterOf, clock: () => new Date(now) })
    for (const { key, ...ended } of closed) await bill(tx, key, ended, 'closePeriods')
  })
}

/** The same random numbers in every run. */
let seed = 33
function random(): number {
  seed = (seed * 16_807) % 2_147_483_647
  return seed / 2_147_483_647
}

/** What one look found. */
interface Look {
  readonly time: number
  readonly start: number
  readonly end: number
  readonly limit: number
  readonly used: number
  readonly denied: boolean
}

const looks = new Map<Org, Look[]>(orgs.map((org) => [org, []]))
for (let day = QUARTER.from; day < QUARTER.to; day += DAY_MS) {
  const busy = [0, 6].includes(new Date(day).getUTCDay()) ? 0.3 : 1
  for (const hour of [10, 16]) {
    now = day + hour * HOUR_MS
    for (const [org, found] of looks) {
      const denied = await org.work(org, busy * (0.5 + random()))
      const { start = 0, reset, limit, used } = await quota.getRemaining(org.name, { limiter: org.plan() })
      found.push({ time: now, start, end: reset, limit, used, denied })
    }
  }
}
now = Date.UTC(2026, 4, 1)
await closeAll()
const queued = await db.select().from(mails).orderBy(mails.queued)
const billed = await db.select().from(invoices).orderBy(invoices.org, invoices.start)
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
    const inPeriod = ({ queued }: { queued: Date }) => +queued >= start && +queued < end
    table.push([
      org.name,
      `${local(start, org)} to ${local(end, org)}`,
      ...[limit.toLocaleString('en'), used.toLocaleString('en'), percent(used / limit), denied.length],
      mailsOf(org)
        .filter(inPeriod)
        .map(({ share, queued }) => `${percent(share)} on ${local(+queued, org)}`)
        .join('\n'),
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
  const found = orgs.find(({ name }) => name === org)
  if (!found) continue
  lines.push([org, `${local(+start, found)} to ${local(+end, found)}`, used.toLocaleString('en'), billedBy])
}
console.log(lines.toString())
await writeFile(new URL('billing.svg', import.meta.url), picture())
console.log('\nThe same as a picture: examples/billing.svg')

function mailsOf({ name }: Org) {
  return queued.filter(({ org }) => org === name)
}

function local(time: number, { timeZone }: Org): string {
  const parts = { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' } as const
  return new Intl.DateTimeFormat('en-GB', { timeZone, ...parts }).format(time)
}

function percent(share: number): string {
  return `${Math.floor(share * 100)} %`
}

/** A panel for each organisation, drawn as SVG. */
function picture(): string {
  // Readable on white and on black.
  const ink = '#768089'
  const size = { width: 960, left: 52, right: 48, top: 124, panel: 128, gap: 88 }
  const panels = [...looks].map(([org, found], place) => ({
    ...{ org, found, place, top: size.top + place * (size.panel + size.gap) },
    starts: [...new Set(found.map(({ start }) => start))],
    limits: [...new Set(found.map(({ limit }) => limit))],
  }))
  const earliest = Math.min(...panels.flatMap(({ starts }) => starts))
  const compact = new Intl.NumberFormat('en', { notation: 'compact' })
  const option: EChartsOption = {
    animation: false,
    textStyle: { fontFamily: 'system-ui, sans-serif', color: ink },
    title: [
      {
        ...{ text: 'Three organisations and what their plans allow', left: 0, top: 0, padding: [4, 0] },
        textStyle: { color: ink, fontSize: 18, fontWeight: 600 },
      },
      ...panels.map(({ org, top }) => ({
        ...{ text: org.name, subtext: org.about, left: 0, top: top - 52, padding: 0, itemGap: 5 },
        textStyle: { color: ink, fontSize: 14, fontWeight: 600 },
        subtextStyle: { color: ink, fontSize: 12 },
      })),
    ],
    legend: {
      ...{ left: 0, top: 36, padding: 0, itemGap: 22, itemWidth: 16, itemHeight: 10, selectedMode: false },
      textStyle: { color: ink, fontSize: 12 },
      data: [
        { name: 'used', icon: 'rect' },
        { name: 'debt', icon: 'rect' },
        { name: 'quota', icon: 'path://M0 4h7v2h-7z M9 4h7v2h-7z' },
        { name: 'denied', icon: 'path://M3 0h2v10h-2z M7 0h2v10h-2z M11 0h2v10h-2z' },
        { name: 'mail queued', icon: 'diamond' },
      ],
    },
    grid: panels.map(({ top }) => ({
      ...{ left: size.left, right: size.right, top, height: size.panel, outerBoundsMode: 'none' },
    })),
    // The time axis has a tick where a period begins, in the organisation's time zone.
    // The other axis has a tick for each quota.
    xAxis: panels.map(({ org, starts }, gridIndex) => ({
      ...{ gridIndex, type: 'time', min: earliest, max: QUARTER.to, splitLine: { show: false } },
      axisTick: { customValues: starts },
      axisLabel: { color: ink, customValues: starts, formatter: (time: number) => local(time, org) },
      axisLine: { lineStyle: { color: ink, opacity: 0.4 } },
    })),
    yAxis: panels.map(({ found, limits }, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: 0, splitLine: { show: false } },
      max: 1.2 * Math.max(...limits, ...found.map(({ used }) => used)),
      axisLabel: {
        color: ink,
        customValues: [0, ...limits],
        formatter: (used: number) => compact.format(used),
      },
    })),
    series: panels.flatMap(({ org, found, place }) => {
      const shown = found.flatMap(drawn)
      const at = { xAxisIndex: place, yAxisIndex: place, silent: true } as const
      const line = { ...at, type: 'line', showSymbol: false, lineStyle: { width: 1.5 } } as const
      const marks = { ...at, type: 'scatter', itemStyle: { opacity: 1 } } as const
      return [
        {
          ...{ ...line, name: 'used', stack: org.name, color: '#2f9e6e', areaStyle: { opacity: 0.25 } },
          data: shown.map(({ time, used, limit }) => [time, Math.min(used, limit)]),
        },
        {
          ...{ ...line, name: 'debt', stack: org.name, color: '#c8553d', areaStyle: { opacity: 0.8 } },
          lineStyle: { width: 0 },
          data: shown.map(({ time, used, limit }) => [time, Math.max(used - limit, 0)]),
        },
        {
          ...{ ...line, name: 'quota', step: 'end', color: ink, lineStyle: { width: 1.5, type: 'dashed' } },
          data: shown.map(({ time, limit }) => [time, limit]),
        },
        {
          ...{ ...marks, name: 'denied', color: '#c8553d', symbol: 'rect', symbolSize: [2, 9] },
          symbolOffset: [0, -7],
          data: found.flatMap(({ time, used, limit, denied }) =>
            denied ? [[time, Math.max(used, limit)]] : [],
          ),
        },
        {
          ...{ ...marks, name: 'mail queued', color: '#c19a3f', symbol: 'diamond', symbolSize: 11 },
          data: mailsOf(org).map(({ queued }) => [
            +queued,
            found.find(({ time }) => time === +queued)?.used ?? 0,
          ]),
        },
      ]
    }),
  }
  const height = size.top + panels.length * (size.panel + size.gap) - size.gap + 32
  const image = init(null, null, { renderer: 'svg', ssr: true, width: size.width, height })
  image.setOption(option)
  const svg = image.renderToSVGString()
  // Without this, its timer would keep the process alive.
  image.dispose()
  return `${svg}\n`
}

/**
 * Adds two points where a period begins: the end of the period before, and the new one with nothing used.
 */
function drawn(look: Look, i: number, found: readonly Look[]): Pick<Look, 'time' | 'used' | 'limit'>[] {
  const before = found[i - 1]
  if (before?.start === look.start) return [look]
  const begins = { ...look, time: look.start, used: 0 }
  return before ? [{ ...before, time: look.start - 1 }, begins, look] : [begins, look]
}
