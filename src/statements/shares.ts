import { sql } from 'drizzle-orm'
import { name, type Parameters } from './builder.ts'
import { type Level, level, type QueryLevel } from './levels.ts'
import { at, type ListRow } from './list-row.ts'

/** What none of the rows has of a rate that they share. */
export const REST = 'rest'

/** What a row gives of the rate. */
export const SHARE = 'share'

/**
 * The levels that add what each row gives of the parameter `rate`: what the first has, then the rest from the
 * next; and the `rest` that none has. It works out the same as `sharesOf` does on numbers.
 */
export function sharesOfRows(
  rows: readonly ListRow[],
  sharing: readonly number[],
  decided: Level,
  parameters: Parameters,
): QueryLevel {
  // Limits that count whole units could not take the rest of a fraction.
  const isWhole = rows.some(({ rules }) => rules.algorithm.integersOnly)
  let shared = level('shared', decided, { [REST]: parameters.number('rate') })
  for (const place of sharing) {
    if (place < 0) {
      shared = level('shared', shared, { [REST]: sql`0::float8` })
      continue
    }
    const { tolerance } = (rows[place] as ListRow).rules.algorithm
    const available = name(at(place, 'available'))
    const most = sql`${available} + ${sql.raw(String(tolerance))}::float8`
    const left = isWhole ? sql`greatest(floor(${most}), 0::float8)` : sql`greatest(${available}, 0::float8)`
    const share = name(at(place, SHARE))
    const given = level('given', shared, {
      [at(place, SHARE)]: sql`case when ${name(REST)} <= ${most} then ${name(REST)} else ${left} end`,
    })
    // Nothing is left if there was enough, whatever a subtraction would say.
    const rest = sql`case when ${name(REST)} <= ${most} then 0::float8 else ${name(REST)} - ${share} end`
    shared = level('shared', given, { [REST]: rest })
  }
  return shared
}
