import { and, isNull, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { type Rendered, render } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { forEach, STATE_COLUMNS, toColumn } from './columns.ts'
import { batch } from './input.ts'

/**
 * The statement that makes the rows of many calls where they are missing, and locks them all, in one order.
 *
 * A made row has no state, and is read as if it were not there. The update never happens, but Postgres locks the row before it
 * finds that out. Returns the rows that it made.
 */
export function lockStatement(table: RateLimitTable): Rendered {
  const { source, column } = batch(['prefix', 'key'])
  return render(
    builder
      .insert(table)
      .select((qb) =>
        qb
          .select({
            prefix: column('prefix').as('prefix'),
            key: column('key').as('key'),
            ...forEach(STATE_COLUMNS, (column) => toColumn(column, undefined).as(column)),
            expiresAt: sql`now()`.as('expires_at'),
          })
          .from(source),
      )
      .onConflictDoUpdate({
        target: [table.prefix, table.key],
        set: { prefix: sql`excluded.prefix` },
        setWhere: sql`false`,
      })
      .returning({ prefix: table.prefix, key: table.key }),
  )
}

/** The statement that removes made rows that have been left without a state. */
export function unmakeStatement(table: RateLimitTable): Rendered {
  const { source, column } = batch(['prefix', 'key'])
  const made = builder
    .$with('ratelimit_made')
    .as((qb) =>
      qb
        .select({ callPrefix: column('prefix').as('callPrefix'), callKey: column('key').as('callKey') })
        .from(source),
    )
  return render(
    builder
      .with(made)
      .delete(table)
      .where(
        and(
          sql`(${table.prefix}, ${table.key}) in ${builder.select().from(made)}`,
          ...STATE_COLUMNS.map((column) => isNull(table[column])),
        ),
      ),
  )
}
