import type { RateLimitTable } from '../../../schema/index.ts'
import { onceFor } from '../base/once.ts'
import { warnOnce } from '../base/warn.ts'
import type { Database } from '../database/database.ts'
import { quotedName } from '../database/table-name.ts'

/** How many prefixes of a database are remembered, because an application may create any number. */
const MAX_PREFIXES = 1000

/** A limiter, as far as it is compared. */
interface Limits {
  /** The kind of its rows. */
  readonly rows: string
  /** Its place in the order in which the limiters were made. */
  readonly made: number
}

/** For a table and prefix: the limiter that was made last, of those that were used. */
interface Prefix {
  latest?: Limits
}

const prefixesOf = /* @__PURE__ */ onceFor((_: Database) => new Map<string, Prefix>())
let count = 0

/**
 * What a limiter calls when it is used. It warns if another limiter of the prefix is used too, and each would
 * start the other's rows again: then the older one is used after the newer one. A module that was loaded again
 * with an edited limit has a newer one, and does not use the older one any more.
 */
export function watchPrefix(db: Database, table: RateLimitTable, prefix: string, rows: string): () => void {
  const prefixes = prefixesOf(db)
  const name = `${quotedName(table)} ${prefix}`
  const shared: Prefix = prefixes.get(name) ?? {}
  if (prefixes.size < MAX_PREFIXES) prefixes.set(name, shared)
  const own: Limits = { rows, made: count++ }
  return () => {
    const { latest } = shared
    if (latest === own) return
    if (!latest || latest.made < own.made) shared.latest = own
    else if (latest.rows !== rows) warnOfSharedPrefix(prefix)
  }
}

function warnOfSharedPrefix(prefix: string): void {
  warnOnce(
    'SHARED_PREFIX',
    `Limiters of different algorithms or windows share the prefix ${JSON.stringify(prefix)}. Each starts the other's rows again, so none limits. Give each its own, or set onOtherPlan. See docs/errors.md#shared_prefix.`,
    prefix,
  )
}
