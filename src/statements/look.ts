import { sql } from 'drizzle-orm'
import { type Rendered, render } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { forEach } from './columns.ts'
import { type Source, settledStates } from './settled.ts'

/** The statement that looks: the states brought forward to now, no lock, no write. */
export function lookStatement(source: Omit<Source, 'lock'>): Rendered {
  const { algorithm } = source
  const { ctes, cte, now, numbers, state } = settledStates({ ...source, lock: false })
  return render(
    builder
      .with(...ctes)
      .select({
        place: numbers.place,
        now,
        available: sql<number>`${algorithm.available(state, now, numbers)}`.as('available'),
        ...forEach(algorithm.columns, (column) => sql`${state[column]}`.as(column)),
      })
      .from(cte),
  )
}
