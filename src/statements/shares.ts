import { type SQL, sql } from 'drizzle-orm'
import { name, type Parameters } from './builder.ts'
import { type Level, level, type QueryLevel } from './levels.ts'
import { at, type ListRow } from './list-row.ts'

/** The part of a shared rate that none of the rows can pay. */
export const REST = 'rest'

/** Whether the rows with a debt have more than they owe, and something is left to pay. */
const PAYS = 'pays'

/** The part of the rate that a row pays. */
export const SHARE = 'share'

/**
 * The levels that add the share of each row in the parameter `rate`, and the `rest` that none can pay. The
 * first row pays as much as it has, the next one pays from the rest, and so on. `sharesOf` does the same on
 * numbers.
 */
export function sharesOfRows(
  rows: readonly ListRow[],
  sharing: readonly number[],
  decided: Level,
  parameters: Parameters,
): QueryLevel {
  // If one gave a fraction, limits that count whole units could not pay the rest.
  const isWhole = sharing.some((place) => rows[place]?.rules.algorithm.integersOnly)
  let shared = level('shared', decided, { [REST]: parameters.number('rate') })
  for (const place of sharing) {
    if (place < 0) {
      shared = level('shared', shared, { [REST]: sql`0::float8` })
      continue
    }
    const { rules, pays } = rows[place] as ListRow
    const available = name(at(place, 'available'))
    if (pays === 'the rest' && place === sharing.at(-1)) {
      shared = level('shared', shared, { [at(place, SHARE)]: name(REST), [REST]: sql`0::float8` })
      continue
    }
    if (pays === 'what it owes') {
      const left = sql.join([available, ...payingFor(rows, sharing)], sql` + `)
      const owes = level('owes', shared, { [PAYS]: sql`${name(REST)} > 0::float8 and ${left} > 0::float8` })
      const owed = sql`case when ${name(PAYS)} then least(${available}, 0::float8) else 0::float8 end`
      shared = level('shared', owes, { [at(place, SHARE)]: owed, [REST]: sql`${name(REST)} - ${owed}` })
      continue
    }
    const had = sql`${available} + ${sql.raw(String(rules.algorithm.tolerance))}::float8`
    const most =
      pays === 'what is not owed' ? sql`case when ${name(PAYS)} then ${had} else 0::float8 end` : had
    const left = isWhole ? sql`greatest(floor(${most}), 0::float8)` : sql`greatest(${available}, 0::float8)`
    const share = name(at(place, SHARE))
    const given = level('given', shared, {
      [at(place, SHARE)]: sql`case when ${name(REST)} <= ${most} then ${name(REST)} else ${left} end`,
    })
    // If there was enough, nothing is left, even if a subtraction would leave a fraction.
    const rest = sql`case when ${name(REST)} <= ${most} then 0::float8 else ${name(REST)} - ${share} end`
    shared = level('shared', given, { [REST]: rest })
  }
  const debtor = sharing.slice(0, -1).find((place) => rows[place]?.pays === 'the rest')
  if (debtor === undefined) return shared
  const all = sql`${name(at(debtor, SHARE))} + ${name(REST)}`
  return level('shared', shared, { [at(debtor, SHARE)]: all, [REST]: sql`0::float8` })
}

/** What the rows have that pay for the debt of another one. */
function payingFor(rows: readonly ListRow[], sharing: readonly number[]): SQL[] {
  const paying = sharing.filter((place) => rows[place]?.pays === 'what is not owed')
  return paying.map((place) => sql`greatest(${name(at(place, 'available'))}, 0::float8)`)
}
