import { asc, desc, eq, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm } from '../algorithms/algorithm.ts'
import type { Rendered } from '../database/rendered.ts'
import { builder, renderChain } from './builder.ts'
import { forEach } from './columns.ts'
import { callsFrom } from './input.ts'
import { aliased, linkOf } from './link.ts'
import { CLOCK_MS, readColumns, settledFrom } from './settled.ts'

/** The statement that finds the `top` keys of a prefix that have used most. */
export function usageStatement(table: RateLimitTable, algorithm: AnyAlgorithm): Rendered {
  const calls = callsFrom(algorithm, ['key'], () => sql`${table.key}`)
  const columns = {
    ...readColumns(algorithm, table),
    clockMs: sql`coalesce(${calls.numbers.clock}, ${CLOCK_MS})`,
  }
  const cte = builder.$with('ratelimit_stored').as((qb) =>
    qb
      .select({ ...calls.carried, ...aliased(columns) })
      .from(table)
      .where(eq(table.prefix, sql.placeholder('prefix'))),
  )
  const { links, last } = settledFrom(algorithm, linkOf(cte, calls, columns))
  const { found, holds, now, ...state } = last.columns
  const { numbers, key } = last.calls
  const used = sql`${algorithm.used(state, now, numbers)}`
  return renderChain(
    builder
      .with(cte, ...links)
      .select({
        key: sql`${key}`.as('key'),
        now,
        ...forEach(algorithm.columns, (column) => state[column]),
      })
      .from(last.cte)
      .where(sql`${holds} and ${used} > ${sql.raw(String(algorithm.tolerance))}`)
      .orderBy(desc(used), asc(sql`${key}`))
      .limit(sql.placeholder('top')),
  )
}
