import type { RateLimitTable } from '../../schema/index.ts'
import type { StoredLimiter } from '../algorithms/algorithm.ts'
import type { Database } from '../database/database.ts'
import { quotedName } from '../tables/table-name.ts'
import { warnOnce } from '../warn.ts'

/** How many prefixes of a database are remembered. An application that makes them up has more. */
const MAX_PREFIXES = 1000

/** What rows the first limiter of each table and prefix has. */
const known = new WeakMap<Database, Map<string, string>>()

/** Warns if limiters that begin each other's rows again share a prefix. */
export function watchPrefix(
  db: Database,
  table: RateLimitTable,
  prefix: string,
  { rows }: StoredLimiter,
): void {
  const prefixes = known.get(db) ?? new Map<string, string>()
  known.set(db, prefixes)
  const name = `${quotedName(table)} ${prefix}`
  const first = prefixes.get(name)
  if (first === undefined) {
    if (prefixes.size < MAX_PREFIXES) prefixes.set(name, rows)
  } else if (first !== rows) {
    warnOnce(
      'SHARED_PREFIX',
      `Two limiters of different algorithms or windows share the prefix ${JSON.stringify(prefix)}. Each begins the other's rows again, so neither limits. One prefix, one algorithm: give each its own, or set onOtherPlan. See docs/errors.md#shared_prefix.`,
      prefix,
    )
  }
}
