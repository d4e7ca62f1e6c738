import { sql } from 'drizzle-orm'
import type { RateLimitTables } from '../../../schema/index.ts'
import type { Database } from '../../kernel/database/database.ts'
import { onlyRow } from '../../kernel/database/rows.ts'
import { execute } from '../../kernel/database/run.ts'
import { denied, deniedOver } from '../../reports/denied.ts'
import { readingOf } from '../../reports/rows.ts'
import { usage } from '../../reports/usage.ts'
import type { ModuleLimit } from '../limits.ts'
import { Pace } from './pace.ts'

/** A limit to show: one of the module, or a prefix of which only denials are known. */
export type Shown =
  | ModuleLimit
  | { readonly prefix: string; readonly reading?: never; readonly durable?: never }

/** What `--json` prints. Numbers are null where they are unknown, or where there is no limit. */
export interface TopReport {
  readonly database: string
  /** Unix milliseconds. */
  readonly at: number
  /** The beginning of the first hour whose denials count, in Unix milliseconds. */
  readonly since: number
  /** Those in trouble come first. */
  readonly limits: readonly TopLimit[]
}

export interface TopLimit {
  readonly prefix: string
  readonly denials: number
  /** Denials a second in the last minute. Undefined at the first look. */
  readonly pace: number | undefined
  readonly keys: readonly TopKey[]
}

export interface TopKey {
  readonly key: string
  readonly denials: number
  /** Null if the key is not one of those that use most. */
  readonly used: number | null
  readonly remaining: number | null
  readonly limit: number | null
  /** Unix milliseconds. */
  readonly reset: number | null
  /** Unix milliseconds; null if it is not blocked. */
  readonly blockedUntil: number | null
  /** Whether its row is of another plan. */
  readonly isOther: boolean
}

export interface Source {
  readonly db: Database
  readonly tables: RateLimitTables
  readonly top: number
  readonly sinceMs: number
  /** The server. Empty for a socket. */
  readonly host: string
}

const HOUR_MS = 3_600_000

/** How many keys are read when some of them are searched. */
const SEARCHED = 1000

/** Reads the limits: the `top` keys of each, or those that have this text in them. */
export type Read = (search?: string) => Promise<TopReport>

export function readerOf(limits: readonly Shown[], source: Source): Read {
  const paces = new Map(limits.map((limit) => [limit, new Pace()]))
  return async (search = '') => {
    const row = onlyRow(await execute(source.db, sql`select current_database() as name`))
    const database = [String(row?.['name']), ...(source.host === '' ? [] : [source.host])].join(' on ')
    const at = Date.now()
    const since = Math.floor((at - source.sinceMs) / HOUR_MS) * HOUR_MS
    const found: TopLimit[] = []
    for (const limit of limits) {
      const denials = await denialsOf(limit, source, at, since)
      const pace = paces.get(limit)?.note(since, { at, denials })
      found.push({ prefix: limit.prefix, denials, pace, keys: await keysOf(limit, source, since, search) })
    }
    return { database, at, since, limits: found.toSorted(byTrouble) }
  }
}

function byTrouble(one: TopLimit, other: TopLimit): number {
  const full = ({ keys }: TopLimit) => keys.filter(isAtLimit).length
  return (other.pace ?? 0) - (one.pace ?? 0) || other.denials - one.denials || full(other) - full(one)
}

/** Whether a call of rate 1 is denied now. */
export function isAtLimit({ remaining, blockedUntil }: TopKey): boolean {
  return remaining === 0 || blockedUntil !== null
}

/** Without a module, the table is unknown, so both are read. */
function rowsOf({ prefix, durable }: Shown, { db, tables }: Source) {
  const both = durable === undefined ? [true, false] : [durable]
  return both.map((each) => ({ db, prefix, tables, durable: each }))
}

async function denialsOf(limit: Shown, source: Source, at: number, since: number): Promise<number> {
  const hours = Math.floor(at / HOUR_MS) - since / HOUR_MS + 1
  let all = 0
  for (const rows of rowsOf(limit, source)) {
    const { hours: each } = await deniedOver(readingOf(rows), { now: at, hours, minutes: 0 })
    all += each.reduce((sum, { denials }) => sum + denials, 0)
  }
  return all
}

/** The keys that were denied most, and then those that use most. */
async function keysOf(limit: Shown, source: Source, since: number, search: string): Promise<TopKey[]> {
  const top = search === '' ? source.top : Math.max(SEARCHED, source.top)
  const keys = new Map<string, TopKey>()
  for (const found of await usageOf(limit, source, top)) keys.set(found.key, found)
  for (const rows of rowsOf(limit, source)) {
    for (const { key, denials } of await denied(rows, { top, since: new Date(since) })) {
      const before = keys.get(key)
      keys.set(key, { ...UNKNOWN, ...before, key, denials: denials + (before?.denials ?? 0) })
    }
  }
  return [...keys.values()]
    .filter(({ key }) => key.includes(search))
    .toSorted((one, other) => other.denials - one.denials || (other.used ?? 0) - (one.used ?? 0))
    .slice(0, source.top)
}

const UNKNOWN = { used: null, remaining: null, limit: null, reset: null, blockedUntil: null, isOther: false }

async function usageOf(limit: Shown, source: Source, top: number): Promise<TopKey[]> {
  const { reading } = limit
  const [rows] = rowsOf(limit, source)
  if (!reading || !rows) return []
  // The two forms of the options are two signatures.
  const found =
    'limiterOf' in reading
      ? await usage({ ...rows, limiterOf: reading.limiterOf }, { top })
      : await usage({ ...rows, limiter: reading.limiter }, { top })
  return found.map(
    ({ key, used, isOther = false, remaining = null, limit = null, reset = null, ...more }) => {
      return {
        key,
        denials: 0,
        used,
        remaining,
        limit,
        reset,
        blockedUntil: more.blockedUntil ?? null,
        isOther,
      }
    },
  )
}
