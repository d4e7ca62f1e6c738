import { sql } from 'drizzle-orm'
import type { Rendered } from '../database/rendered.ts'
import { builder, renderChain } from './builder.ts'
import { forEach } from './columns.ts'
import { type Source, settledStates } from './settled.ts'

/**
 * The statement that looks: no write, and no lock for one key.
 *
 * Many are looked at by limitAll, which has locked them before; to lock them again takes nothing, and has each looked up by itself.
 */
export function lookStatement(source: Omit<Source, 'lock'>): Rendered {
  const { ctes, last } = settledStates({ ...source, lock: source.form !== 'one' })
  const { now, ...columns } = last.columns
  return renderChain(
    builder
      .with(...ctes)
      .select({
        place: sql`${last.calls.place}`.as('place'),
        now,
        decided: sql<boolean>`${source.algorithm.applies?.(now, last.calls.numbers) ?? sql`true`}`.as(
          'decided',
        ),
        ...forEach(source.algorithm.columns, (column) => columns[column]),
      })
      .from(last.cte),
  )
}
