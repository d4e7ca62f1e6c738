import { RatelimitError } from '../errors.ts'
import type { Row } from './run.ts'

// What every answer has to be. Otherwise a number would be made up, or the rows of a key would be mixed up.

/**
 * The value of a column that every row of an answer must have.
 *
 * @throws RatelimitError `DATABASE` if it is absent.
 */
export function mustHave<T>(value: T | undefined): T {
  if (value !== undefined) return value
  throw notAsExpected('lacks a column: the driver gives it another name')
}

/**
 * The row of an answer that has one at most.
 *
 * @throws RatelimitError `DATABASE` if it has more.
 */
export function onlyRow(rows: readonly Row[]): Row | undefined {
  return atMost(rows, 1)[0]
}

/**
 * The rows, of which there are so many at most. A sharded database that cannot route a statement may answer
 * with the rows of every shard.
 *
 * @throws RatelimitError `DATABASE` if there are more.
 */
export function atMost(rows: readonly Row[], most: number): readonly Row[] {
  if (rows.length <= most) return rows
  throw notAsExpected('has more rows than were asked for')
}

/**
 * The rows, so many at most, of which no two have the same value in the column.
 *
 * @throws RatelimitError `DATABASE` if there are more, or two for one value.
 */
export function distinct(rows: readonly Row[], column: 'key' | 'place', most: number): readonly Row[] {
  const values = new Set(rows.map((row) => String(mustHave(row[column]))))
  if (values.size < rows.length) throw notAsExpected(TWO_ROWS)
  return atMost(rows, most)
}

export const TWO_ROWS = 'has two rows for one key'

export function notAsExpected(what: string): RatelimitError {
  return new RatelimitError('DATABASE', `The database's answer ${what}.`)
}
