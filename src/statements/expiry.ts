import { type SQL, sql } from 'drizzle-orm'
import type { Parameters } from './builder.ts'

/** The latest expiry, in the year 255,000. Postgres timestamps end in 294,276, and a debt may last longer. */
export const MAX_TIME: SQL<number> = sql.raw('8e15::float8') as SQL<number>

/** The time at which a row expires. It is rounded up, so that most updates do not change it. */
export function onGrid(time: SQL<number>, parameters: Parameters): SQL<number> {
  const grid = parameters.number('expiryGridMs')
  return sql<number>`least(ceil((${time}) / ${grid}) * ${grid}, ${MAX_TIME})`
}
