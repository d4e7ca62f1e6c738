import { and, eq, gt, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { builder, Parameters } from '../../kernel/sql/builder.ts'
import { exact, fromColumn, isOfKind } from '../../kernel/sql/columns.ts'

/**
 * The statement that lists slots under a lease, of all keys that have a part, those whose lease ends first
 * before the others. Slots that are held by a transaction are not committed, so they are not there.
 */
export function heldSlotsStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const until = sql`to_timestamp(${parameters.number('clock')} / 1000::float8)`
  const key = sql`left(${table.key}, -5)`
  const number = (column: SQL, name: string) => exact(column).as(name)
  const rows = builder
    .select({
      key: key.mapWith(String).as('key'),
      slot: sql`right(${table.key}, 4)`.as('slot'),
      fence: number(fromColumn('count', table.count), 'fence'),
      ends: number(fromColumn('lastRefill', table.lastRefill), 'ends'),
    })
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        gt(table.expiresAt, until),
        gt(table.lastRefill, until),
        isOfKind(ROWS.slot, table),
        // The row with the number 0 says whose turn it is.
        sql`${table.key} ~ '#[0-9]{4}$' and right(${table.key}, 4) <> '0000'`,
        sql`strpos(${key}, ${parameters.text('part')}) > 0`,
      ),
    )
    .orderBy(table.lastRefill, table.key)
  return parameters.render(sql`${rows.getSQL()} limit ${parameters.number('size')}::bigint`)
}
