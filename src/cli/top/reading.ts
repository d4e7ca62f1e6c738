import { sql } from 'drizzle-orm'
import { onlyRow } from '../../kernel/database/rows.ts'
import { execute } from '../../kernel/database/run.ts'
import { deniedOver } from '../../reports/denied.ts'
import { readingOf } from '../../reports/rows.ts'
import { keysOf, rowsOf, type Shown, type Source, type TopKey } from './keys.ts'
import { Pace } from './pace.ts'

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

const HOUR_MS = 3_600_000

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

async function denialsOf(limit: Shown, source: Source, at: number, since: number): Promise<number> {
  const hours = Math.floor(at / HOUR_MS) - since / HOUR_MS + 1
  let all = 0
  for (const rows of rowsOf(limit, source)) {
    const { hours: each } = await deniedOver(readingOf(rows), { now: at, hours, minutes: 0 })
    all += each.reduce((sum, { denials }) => sum + denials, 0)
  }
  return all
}
