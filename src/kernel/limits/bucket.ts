import { type SQL, sql } from 'drizzle-orm'
import { MAX_MS } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Algorithm, AnyAlgorithm, Expression, StateColumn } from './algorithm.ts'
import { MAX_COUNT } from './limiter.ts'

/**
 * In double precision, three times 0.1 is a little more than 0.3. Taking 0.1 three times from 0.3 must work.
 */
export const TOLERANCE = 1e-9

export const TOLERANCE_SQL: Expression = sql.raw(`${TOLERANCE}::float8`) as Expression

/** With its type, as each number next to an operator: `public` may have an operator that fits better. */
const MOST_UNITS = sql.raw(`${MAX_COUNT}::float8`)

/** Well above the tolerance. */
const MIN_AMOUNT = 1e-6

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkAmounts(amounts: Readonly<Record<string, unknown>>): void {
  const isAmount = (amount: unknown) =>
    typeof amount === 'number' && amount >= MIN_AMOUNT && amount <= Number.MAX_SAFE_INTEGER
  if (Object.values(amounts).every(isAmount)) return
  const names = Object.keys(amounts).join(' and ')
  throw new RatelimitError(
    'INVALID_LIMIT',
    `${names} must be numbers from 0.000001 to 2^53 - 1; only a window can count without a limit.`,
  )
}

/**
 * The time in which an empty bucket fills.
 *
 * @throws RatelimitError `INVALID_LIMIT`
 */
export function fillingMs(durationMs: number): number {
  if (durationMs > MAX_MS) {
    throw new RatelimitError('INVALID_LIMIT', 'The bucket must be full within a hundred years.')
  }
  return durationMs
}

/**
 * Whether a bucket can have written the row. An impossible amount would allow or deny every call. NaN does not
 * pass, because Postgres sorts it above every number.
 */
export function isPlausible(
  tokens: Expression,
  written: Expression,
  clock: Expression,
  periodMs: Expression,
): SQL<boolean> {
  return sql`${written} - ${clock} <= ${periodMs} and ${written} > '-1e14'::float8 and abs(${tokens}) < 1e100::float8`
}

/**
 * The bucket for calls that are given starts, and for those that give units back. Its state has one column
 * more, `prevCount`: the time until which starts are promised, or null.
 *
 * Until then, a refund gives back only the debt that is left after the last of these starts. With more, another
 * call could start together with one of them.
 */
export function promising<Column extends StateColumn, Param extends string>(
  bucket: Algorithm<Column, Param>,
): AnyAlgorithm {
  // Its states have only its own columns, and it reads no others.
  const plain = bucket as unknown as AnyAlgorithm
  const { sql: formulas, numbers } = plain
  return {
    ...plain,
    name: `${plain.name} with promises`,
    columns: [...plain.columns, 'prevCount'],
    sql: {
      ...formulas,
      fresh: (now, params) => ({ ...formulas.fresh(now, params), prevCount: sql`null::float8` }),
      consume: (state, now, available, amount, params, reserved) => {
        const owed = sql`least(${formulas.available(state, state.prevCount, params)}, 0::float8)`
        const due = sql<number>`case when ${state.prevCount} > ${now} then greatest(${amount}, ${owed}) else ${amount} end`
        // Other programs may have written more than a double can represent exactly.
        const prevCount = sql<number>`case when ${state.prevCount} > ${MOST_UNITS} then ${MOST_UNITS} else ${state.prevCount} end`
        return { ...formulas.consume(state, now, available, sql`(${due})`, params, reserved), prevCount }
      },
    },
    numbers: {
      ...numbers,
      consume: (state, now, amount, params, reserved) => {
        const { prevCount } = state
        const owed = () => Math.min(numbers.available(state, prevCount, params), 0)
        const due = prevCount > now ? Math.max(amount, owed()) : amount
        const next = numbers.consume(state, now, due, params, reserved)
        return { ...next, prevCount: Math.min(prevCount, MAX_COUNT) }
      },
    },
  }
}
