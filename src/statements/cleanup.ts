import { and, asc, count, eq, lte, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { type Rendered, render } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { param } from './input.ts'

/**
 * The statement that sweeps: deletes the prefix's longest expired rows, `rows` at most.
 *
 * It locks what it deletes and skips what others have locked, so it never waits for anyone and never deletes a row that
 * was renewed meanwhile. `now()` and not the clock: a volatile function cannot be looked up in the index.
 */
export function cleanupStatement(table: RateLimitTable): Rendered {
  const place = sql<string>`${table}.ctid`
  const expired = builder
    .select({ place })
    .from(table)
    .where(
      and(
        eq(table.prefix, sql.placeholder('prefix')),
        lte(table.expiresAt, sql`coalesce(to_timestamp(${param('clock', 'float8')} / 1000), now())`),
      ),
    )
    .orderBy(asc(table.expiresAt))
    .limit(sql.placeholder('rows'))
    .for('update', { skipLocked: true })
  const deleted = builder
    .$with('ratelimit_deleted')
    .as(builder.delete(table).where(sql`${place} = any(array(${expired}))`).returning({ key: table.key }))
  return render(
    builder
      .with(deleted)
      .select({ deleted: count().as('deleted') })
      .from(deleted),
  )
}
