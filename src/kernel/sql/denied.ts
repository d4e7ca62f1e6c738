import { and, eq, gte, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import { builder, Parameters } from './builder.ts'
import { DENIED } from './own-prefixes.ts'

// A row counts the denials of a key in an hour. The row without a key counts those of all keys.

/** The prefix of the rows that count the denials of a limiter. */
export function deniedPrefix(prefix: string): string {
  return prefix + DENIED
}

/** An hour as the rows name it: `2026-01-31T09`. */
export function hourOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, HOUR_LENGTH)
}

const HOUR_LENGTH = '2026-01-31T09'.length

/** The key of the row that counts a key's denials in an hour. */
export function denialsKey(hour: string, key: string): string {
  return `${hour} ${key}`
}

/** The key of the row that counts all denials of an hour. No limiter has an empty key. */
export function allDenialsKey(hour: string): string {
  return denialsKey(hour, '')
}

/** The statement that finds `top` of the keys with the most denials since an hour, and how many there are. */
export function deniedStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const key = sql.raw(`substr(key, ${HOUR_LENGTH + 2})`)
  return parameters.render(
    sql`select ${key} as key, sum(count) as denials, count(*) over () as total
      from (${rowsSince(table, parameters)}) as counted where ${key} <> ''
      group by 1 order by denials desc, 1 limit ${parameters.number('top')}::bigint offset ${parameters.number('offset')}::bigint`,
  )
}

/** The statement that finds how many denials rows have counted, by their keys. It reads no other rows. */
export function deniedByHourStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const isOne = sql`${table.key} = any(${parameters.shownArray('keys', 'text')})`
  return parameters.render(
    builder
      .select({ key: table.key, denials: sql`${table.count}`.as('denials') })
      .from(table)
      .where(and(eq(table.prefix, parameters.text('prefix')), isOne))
      .getSQL(),
  )
}

function rowsSince(table: RateLimitTable, parameters: Parameters): SQL {
  return builder
    .select({ key: table.key, count: table.count })
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        // Collations of a language may ignore punctuation. Hours are compared by their bytes.
        gte(sql`${table.key} collate "C"`, parameters.text('since')),
      ),
    )
    .getSQL()
}
