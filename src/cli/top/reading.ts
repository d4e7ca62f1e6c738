import { sql } from 'drizzle-orm'
import { onlyRow } from '../../kernel/database/rows.ts'
import { execute } from '../../kernel/database/run.ts'
import { denialsIn, deniedOver } from '../../reports/denied.ts'
import { HOUR, MINUTE } from '../../shared/denied-rows.ts'
import { readingOf } from '../../shared/limiter-rows.ts'
import { timeOf } from '../../shared/number-columns.ts'
import { keysOf, placesOf, type ShownLimit, type TopKey, type TopSource } from './keys.ts'

/** What `--json` prints. Numbers are null where they are unknown, or where there is no limit. */
export interface TopReport {
  readonly database: string
  /** The database's time, in Unix milliseconds. */
  readonly at: number
  /** The beginning of the first hour whose denials count, in Unix milliseconds. */
  readonly since: number
  /** Those in trouble come first. */
  readonly limits: readonly TopLimit[]
}

export interface TopLimit {
  readonly prefix: string
  readonly denials: number
  /** Denials a second in this minute and the last one. */
  readonly pace: number
  readonly keys: readonly TopKey[]
}

/** Reads the limits: the `top` keys of each, or those that have this text in them. */
export type Read = (search?: string) => Promise<TopReport>

export function readerOf(limits: readonly ShownLimit[], source: TopSource): Read {
  return async (search = '') => {
    const row = onlyRow(await execute(source.db, sql`select current_database() as name`))
    const database = [String(row?.['name']), ...(source.host === '' ? [] : [source.host])].join(' on ')
    // Denials are counted by the database's time.
    const at = await timeOf(source.db, undefined)
    const since = Math.floor((at - source.sinceMs) / HOUR.ms) * HOUR.ms
    const found: TopLimit[] = []
    for (const limit of limits) {
      const keys = await keysOf(limit, source, since, search)
      found.push({ prefix: limit.prefix, ...(await denialsOf(limit, source, at, since)), keys })
    }
    return { database, at, since, limits: found.toSorted(byTrouble) }
  }
}

function byTrouble(one: TopLimit, other: TopLimit): number {
  const full = ({ keys }: TopLimit) => keys.filter(isAtLimit).length
  return other.pace - one.pace || other.denials - one.denials || full(other) - full(one)
}

/** Whether a call of rate 1 is denied now. */
export function isAtLimit({ remaining, blockedUntil }: TopKey): boolean {
  return remaining === 0 || blockedUntil !== null
}

async function denialsOf(
  limit: ShownLimit,
  source: TopSource,
  at: number,
  since: number,
): Promise<Pick<TopLimit, 'denials' | 'pace'>> {
  const hours = Math.floor(at / HOUR.ms) - since / HOUR.ms + 1
  let [denials, recent] = [0, 0]
  for (const rows of placesOf(limit, source)) {
    const found = await deniedOver(readingOf(rows), { now: at, hours, minutes: 2 })
    denials += denialsIn(found.hours)
    recent += denialsIn(found.minutes)
  }
  return { denials, pace: (recent * 1000) / (MINUTE.ms + (at % MINUTE.ms)) }
}
