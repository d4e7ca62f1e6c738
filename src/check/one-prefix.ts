import type { RateLimitTable } from '../../schema/index.ts'
import { warnOnce } from '../base/warn.ts'
import type { Database } from '../database/database.ts'
import { quotedName } from '../tables/table-name.ts'

/** How many prefixes of a database are remembered, because an application may create any number. */
const MAX_PREFIXES = 1000

/** The kind of rows that the first limiter of each table and prefix has. */
const known = new WeakMap<Database, Map<string, string>>()

/** Warns if two limiters share a prefix and would each start the other's rows again. */
export function watchPrefix(db: Database, table: RateLimitTable, prefix: string, rows: string): void {
  const prefixes = known.get(db) ?? new Map<string, string>()
  known.set(db, prefixes)
  const name = `${quotedName(table)} ${prefix}`
  const first = prefixes.get(name)
  if (first === undefined) {
    if (prefixes.size < MAX_PREFIXES) prefixes.set(name, rows)
  } else if (first !== rows) {
    warnOnce(
      'SHARED_PREFIX',
      `Two limiters with different algorithms or windows share the prefix ${JSON.stringify(prefix)}. Each starts the other's rows again, so neither limits. Give each its own prefix, or set onOtherPlan. See docs/errors.md#shared_prefix.`,
      prefix,
    )
  }
}
