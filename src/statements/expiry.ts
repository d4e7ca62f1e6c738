import { type SQL, sql } from 'drizzle-orm'
import type { Parameters } from './builder.ts'

/** In the year 255,000: timestamps end in 294,276, and a debt may be paid back later than that. */
export const MAX_TIME: SQL<number> = sql.raw('8e15::float8') as SQL<number>

/** The time at which a row expires: rounded up, so that most updates leave it as it is. */
export function onGrid(time: SQL<number>, parameters: Parameters): SQL<number> {
  const grid = parameters.number('expiryGridMs')
  return sql<number>`least(ceil((${time}) / ${grid}) * ${grid}, ${MAX_TIME})`
}
