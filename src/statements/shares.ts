import { type SQL, sql } from 'drizzle-orm'
import { name, type Parameters } from './builder.ts'
import { type Level, level } from './levels.ts'
import { type Link, link } from './link.ts'
import { decidedAt, type ListRow } from './list-row.ts'

/** The name of the link. */
export const SHARES = 'ratelimit_shares'

/**
 * What each row gives of the parameter `rate`: what the first has, then the rest from the next; and the `rest`
 * that none has. It works out the same as `sharesOf` does on numbers.
 */
export function sharesLink(
  rows: readonly ListRow[],
  sharing: readonly number[],
  parameters: Parameters,
): Link {
  // Limits that count whole units could not take the rest of a fraction.
  const isWhole = rows.some(({ rules }) => rules.algorithm.integersOnly)
  const stored = sharing.filter((place) => place >= 0)
  const has = stored.map(
    (place) => sql`${name('available', decidedAt(place))} as ${name(`available_${place}`)}`,
  )
  const sources = stored.map((place) => name(decidedAt(place)))
  const columns = [sql`${parameters.number('rate')} as rest`, ...has]
  const from = sources.length > 0 ? sql` from ${sql.join(sources, sql` cross join `)}` : sql``
  let shared: Level & { query: SQL } = {
    query: sql`select ${sql.join(columns, sql`, `)}${from}`,
    source: sql`(select ${sql.join(columns, sql`, `)}${from} offset 0) as shared`,
    columns: ['rest', ...stored.map((place) => `available_${place}`)],
  }
  for (const place of sharing) {
    if (place < 0) {
      shared = level('shared', shared, { rest: sql`0::float8` })
      continue
    }
    const { tolerance } = (rows[place] as ListRow).rules.algorithm
    const available = name(`available_${place}`)
    const most = sql`${available} + ${sql.raw(String(tolerance))}::float8`
    const left = isWhole ? sql`greatest(floor(${most}), 0::float8)` : sql`greatest(${available}, 0::float8)`
    const share = sql`case when rest <= ${most} then rest else ${left} end`
    const given = level('given', shared, { [`share_${place}`]: share })
    // Nothing is left if there was enough, whatever a subtraction would say.
    const rest = sql`case when rest <= ${most} then 0::float8 else rest - ${name(`share_${place}`)} end`
    shared = level('shared', given, { rest }, [`available_${place}`])
  }
  return link(SHARES, shared.query)
}
