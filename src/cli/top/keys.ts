import type { RateLimitTables } from '../../../schema/index.ts'
import type { Database } from '../../kernel/database/database.ts'
import { denied } from '../../reports/denied.ts'
import { type KeyUsage, type OtherUsage, usage } from '../../reports/usage.ts'
import { lookAtPlans } from '../../reports/usage-by-plan.ts'
import { type LimiterRows, readingOf } from '../../shared/limiter-rows.ts'
import { timeOf } from '../../shared/number-columns.ts'
import type { ModuleLimit } from '../limits.ts'

/** A limit to show: one of the module, or a prefix of which only denials are known. */
export type ShownLimit =
  | ModuleLimit
  | { readonly prefix: string; readonly reading?: never; readonly durable?: never }

export interface TopSource {
  readonly db: Database
  readonly tables: RateLimitTables
  readonly top: number
  readonly sinceMs: number
  /** The server. Empty for a socket. */
  readonly host: string
}

export interface TopKey {
  readonly key: string
  readonly denials: number
  /** Null if the limit is not known, or if the key has no row. */
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

/** Where the rows of a limit are. */
type Place = Pick<LimiterRows, 'db' | 'prefix' | 'tables' | 'durable'>

/** How many keys are read when some of them are searched. */
const SEARCHED = 1000

/** Without a module, the table is unknown, so both are read. */
export function placesOf({ prefix, durable }: ShownLimit, { db, tables }: TopSource): readonly Place[] {
  const both = durable === undefined ? [true, false] : [durable]
  return both.map((each) => ({ db, prefix, tables, durable: each }))
}

/** The keys that were denied most, and then those that use most. */
export async function keysOf(
  limit: ShownLimit,
  source: TopSource,
  since: number,
  search: string,
): Promise<readonly TopKey[]> {
  const top = search === '' ? source.top : Math.max(SEARCHED, source.top)
  const keys = new Map<string, TopKey>()
  for (const found of await usageIn(limit, source, top)) keys.set(found.key, found)
  for (const rows of placesOf(limit, source)) {
    for (const { key, denials } of await denied(rows, { top, since: new Date(since) })) {
      const before = keys.get(key)
      keys.set(key, { ...UNKNOWN, ...before, key, denials: denials + (before?.denials ?? 0) })
    }
  }
  const shown = [...keys.values()]
    .filter(({ key }) => key.includes(search))
    .toSorted((one, other) => other.denials - one.denials || (other.used ?? 0) - (one.used ?? 0))
    .slice(0, source.top)
  return withUsage(shown, limit, source)
}

/** Looks at keys that were denied most, and are not among those that use most. */
async function withUsage(
  keys: readonly TopKey[],
  limit: ShownLimit,
  source: TopSource,
): Promise<readonly TopKey[]> {
  const { reading } = limit
  const [rows] = placesOf(limit, source)
  const missing = keys.filter(({ used }) => used === null)
  if (!reading || !rows || missing.length === 0) return keys
  const planned = await Promise.all(
    missing.map(async ({ key }) => {
      const limiter = 'limiterOf' in reading ? await reading.limiterOf(key) : reading.limiter
      return { key, limiter }
    }),
  )
  const asked = readingOf(rows)
  const usages = await lookAtPlans(asked, planned, await timeOf(asked.db, asked.clock))
  const found = new Map(usages.map((each) => [each.key, topKey(each)]))
  return keys.map((each) => ({ ...each, ...found.get(each.key), denials: each.denials }))
}

const UNKNOWN = { used: null, remaining: null, limit: null, reset: null, blockedUntil: null, isOther: false }

/** A key without denials. */
function topKey(found: KeyUsage | OtherUsage): TopKey {
  const { key, used, remaining = null, limit = null, reset = null } = found
  const { blockedUntil = null, isOther = false } = found
  return { key, denials: 0, used, remaining, limit, reset, blockedUntil, isOther }
}

async function usageIn(limit: ShownLimit, source: TopSource, top: number): Promise<TopKey[]> {
  const { reading } = limit
  const [rows] = placesOf(limit, source)
  if (!reading || !rows) return []
  // The two forms of the options are two signatures.
  const found =
    'limiterOf' in reading
      ? await usage({ ...rows, limiterOf: reading.limiterOf }, { top })
      : await usage({ ...rows, limiter: reading.limiter }, { top })
  return found.map(topKey)
}
