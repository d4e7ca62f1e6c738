import { sql } from 'drizzle-orm'
import { type Rendered, render } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { forEach } from './columns.ts'
import { type Source, settledStates } from './settled.ts'

/** The statement that looks: the state brought forward to now, no lock, no write. */
export function remainingStatement(source: Pick<Source, 'table' | 'algorithm'>): Rendered {
  const { algorithm } = source
  const { ctes, cte, key, now, numbers, state } = settledStates({ ...source, form: 'one', lock: false })
  return render(
    builder
      .with(...ctes)
      .select({
        key,
        now,
        available: sql<number>`${algorithm.available(state, now, numbers)}`.as('available'),
        ...forEach(algorithm.columns, (column) => sql`${state[column]}`.as(column)),
      })
      .from(cte),
  )
}
