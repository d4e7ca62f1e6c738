import { RatelimitError } from '../errors.ts'
import type { Row } from './run.ts'

// Checks of every answer. Without them, a missing number could become 0, or the rows of two keys could be
// mixed.

/**
 * The value of a column that every row of an answer must have.
 *
 * @throws RatelimitError `DATABASE` if it is absent.
 */
export function mustHave<T>(value: T | undefined): T {
  if (value !== undefined) return value
  throw notAsExpected('lacks a column: the driver gives it another name')
}

const bytes = /* @__PURE__ */ new DataView(new ArrayBuffer(8))

/**
 * The double precision numbers that the answer has as eight bytes each, in hexadecimal. `parseInt` takes three
 * times as long.
 *
 * @throws RatelimitError `DATABASE` if it is no text.
 */
export function exactNumbers(value: unknown): number[] {
  const digits = mustHave(typeof value === 'string' ? value : undefined)
  const numbers: number[] = []
  let fourBytes = 0
  for (let place = 0; place < digits.length; place++) {
    const digit = digits.charCodeAt(place)
    // The last four bits of `1` are 1, and those of `a` are 1 too. Only letters have the bit of 64.
    fourBytes = (fourBytes << 4) | ((digit & 15) + (digit >> 6) * 9)
    if (place % 8 === 7) bytes.setInt32((place & 8) / 2, fourBytes)
    if (place % 16 === 15) numbers.push(bytes.getFloat64(0))
  }
  return numbers
}

/**
 * The row of an answer with at most one row.
 *
 * @throws RatelimitError `DATABASE` if it has more.
 */
export function onlyRow(rows: readonly Row[]): Row | undefined {
  return atMost(rows, 1)[0]
}

/**
 * The rows of an answer with at most `most` rows. A sharded database that cannot route a statement may return
 * the rows of every shard.
 *
 * @throws RatelimitError `DATABASE` if there are more.
 */
export function atMost(rows: readonly Row[], most: number): readonly Row[] {
  if (rows.length <= most) return rows
  throw notAsExpected('has more rows than were asked for')
}

/**
 * The rows of an answer with at most `most` rows, which all have different values in the column.
 *
 * @throws RatelimitError `DATABASE` if there are more, or if two have the same value.
 */
export function distinct(rows: readonly Row[], column: 'key' | 'place', most: number): readonly Row[] {
  const values = new Set(rows.map((row) => String(mustHave(row[column]))))
  if (values.size < rows.length) throw notAsExpected(TWO_ROWS)
  return atMost(rows, most)
}

export const TWO_ROWS = 'has two rows for one key'

/** @param predicate The rest of the sentence that begins with "The database's answer". */
export function notAsExpected(predicate: string): RatelimitError {
  return new RatelimitError('DATABASE', `The database's answer ${predicate}.`)
}
