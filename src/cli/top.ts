import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { inDigits, inTime } from '../kernel/base/readable.ts'
import type { Database } from '../kernel/database/database.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { type DeniedKey, denied } from '../reports/denied.ts'
import { usage } from '../reports/usage.ts'
import { connect } from './connect.ts'
import { inColumns } from './layout.ts'
import { limitsIn, type ModuleLimit } from './limits.ts'
import type { Output } from './output.ts'
import { TABLE_OPTIONS, tablesFrom } from './tables.ts'

const TOP_OPTIONS = {
  ...TABLE_OPTIONS,
  limits: { type: 'string' },
  prefix: { type: 'string', multiple: true },
  top: { type: 'string', default: '10' },
  every: { type: 'string', default: '2s' },
  since: { type: 'string', default: '1h' },
  once: { type: 'boolean', default: false },
} as const

/** A limit to show: one of the module, or a prefix of which only denials are known. */
type Shown = ModuleLimit | { readonly prefix: string; readonly reading?: never; readonly durable?: never }

interface Showing {
  readonly db: Database
  readonly tables: ReturnType<typeof tablesFrom>
  readonly top: number
  readonly sinceMs: number
}

/** Shows the keys that use most and are denied most, again and again in a terminal, and otherwise once. */
export async function top(args: string[], output: Output): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: TOP_OPTIONS, allowPositionals: true })
  const [url = process.env['DATABASE_URL'], ...more] = positionals
  if (!url) throw new Error('Which database? Run `drizzle-ratelimit top <url>`, or set DATABASE_URL.')
  if (more.length > 0) throw new Error('`drizzle-ratelimit top` takes one URL.')
  const everyMs = parseDuration(values.every as Duration, '--every')
  const sinceMs = parseDuration(values.since as Duration, '--since')
  const limits = await chosenLimits(values.limits, values.prefix ?? [])

  const { db, end } = await connect(url)
  try {
    const showing = { db, tables: tablesFrom(values), top: Number(values.top), sinceMs }
    const { screen } = output
    for (;;) {
      const lines = await screenLines(limits, showing)
      if (screen && !values.once) screen.clear()
      output.log(lines.join('\n'))
      if (!screen || values.once) return 0
      const isOver = await sleep(everyMs, false, { signal: screen.signal }).catch(() => true)
      if (isOver) return 0
    }
  } finally {
    await end()
  }
}

/** The limits of a module, or those of the prefixes only. Without a module, only denials are known. */
async function chosenLimits(module: string | undefined, prefixes: readonly string[]): Promise<Shown[]> {
  if (module === undefined) {
    if (prefixes.length > 0) return prefixes.map((prefix) => ({ prefix }))
    throw new Error('Which limits? Add --limits <module>, or --prefix <name> to see its denials only.')
  }
  const all = await limitsIn(module)
  const missing = prefixes.filter((prefix) => all.every((each) => each.prefix !== prefix))
  if (missing.length > 0) throw new Error(`The module of --limits has no limit for ${missing.join(', ')}.`)
  return prefixes.length === 0 ? all : all.filter(({ prefix }) => prefixes.includes(prefix))
}

async function screenLines(limits: readonly Shown[], showing: Showing): Promise<string[]> {
  const blocks: string[][] = []
  for (const limit of limits) blocks.push(await limitLines(limit, showing))
  return blocks.flatMap((block, place) => (place === 0 ? block : ['', ...block]))
}

async function limitLines(limit: Shown, showing: Showing): Promise<string[]> {
  const { prefix, reading, durable } = limit
  const counts = (await deniedOf(limit, showing)).map(({ key, denials }) => [key, inDigits(denials)])
  const nothing = [['  nothing', '']]
  if (!reading) return inColumns([[prefix, 'denied'], ...(counts.length > 0 ? counts : nothing)])
  const { db, tables, top } = showing
  const rows = { db, prefix, tables, durable }
  const now = Date.now()
  // The two forms of the options are two signatures.
  const most =
    'limiterOf' in reading
      ? await usage({ ...rows, limiterOf: reading.limiterOf }, { top })
      : await usage({ ...rows, limiter: reading.limiter }, { top })
  const used = most.map((each) => [
    each.key,
    inDigits(each.used),
    ...(each.isOther
      ? ['another plan']
      : [inDigits(each.remaining), inDigits(each.limit), inTime(each.reset, now)]),
    ...(each.blockedUntil === undefined ? [] : [`blocked for ${inTime(each.blockedUntil, now)}`]),
  ])
  return [
    ...inColumns([[prefix, 'used', 'left', 'limit', 'full in'], ...(used.length > 0 ? used : nothing)]),
    ...(counts.length > 0 ? inColumns([['', 'denied'], ...counts]) : []),
  ]
}

/** The keys that were denied most. Without a module, the table is unknown, so both are read. */
async function deniedOf(
  { prefix, durable }: Shown,
  { db, tables, top, sinceMs }: Showing,
): Promise<DeniedKey[]> {
  const since = new Date(Date.now() - sinceMs)
  const found: DeniedKey[] = []
  for (const each of durable === undefined ? [true, false] : [durable]) {
    found.push(...(await denied({ db, prefix, tables, durable: each }, { top, since })))
  }
  return found.toSorted((one, other) => other.denials - one.denials).slice(0, top)
}
