import { and, between, eq, gte, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { builder, Parameters } from '../../kernel/sql/builder.ts'
import { exact, fromColumn } from '../../kernel/sql/columns.ts'
import { HOUR, type Span } from '../../shared/denied-rows.ts'

/**
 * The statement that finds `top` of the keys with the most denials since an hour or a minute, and how many
 * there are. An empty part is in every key.
 */
export function deniedStatement(table: RateLimitTable, span: Span): Statement {
  const parameters = new Parameters()
  const key = sql.raw(`substr(key, ${span.named + 2})`)
  return parameters.render(
    sql`select ${key} as key, sum(count) as denials, count(*) over () as total
      from (${rowsSince(table, span, parameters)}) as counted
      where ${key} <> '' and strpos(${key}, ${parameters.text('part')}) > 0
      group by 1 order by denials desc, 1 limit ${parameters.number('top')}::bigint offset ${parameters.number('offset')}::bigint`,
  )
}

/** The statement that finds what rows have counted, by their keys. It reads no other rows. */
export function deniedInStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const isOne = sql`${table.key} = any(${parameters.array('keys', 'text', true)})`
  return parameters.render(
    builder
      .select({
        key: table.key,
        denials: sql`${table.count}`.as('denials'),
        first: exact(fromColumn('windowStart', table.windowStart)).as('first'),
      })
      .from(table)
      .where(and(eq(table.prefix, parameters.text('prefix')), isOne))
      .getSQL(),
  )
}

function rowsSince(table: RateLimitTable, span: Span, parameters: Parameters): SQL {
  const time = (name: string) => sql`to_timestamp(${parameters.number(name)} / 1000::float8)`
  return builder
    .select({ key: table.key, count: table.count })
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        // The index finds the rows of the time, and few of the other span.
        between(table.expiresAt, time('firstEnd'), time('lastEnd')),
        // Collations of a language may ignore punctuation. Times are compared by their bytes.
        gte(sql`${table.key} collate "C"`, parameters.text('since')),
        sql`substr(${table.key}, ${sql.raw(String(HOUR.named + 1))}, 1) = ${sql.raw(`'${span.mark}'`)}`,
      ),
    )
    .getSQL()
}
