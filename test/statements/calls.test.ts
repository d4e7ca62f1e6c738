import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { compareText, numberArray, textArray } from '../../src/statements/calls.ts'
import { useDatabase } from '../support/databases.ts'

const database = useDatabase()

/** Texts that mean something in an array of Postgres, in SQL or in JSON; and some that only look alike. */
const AWKWARD = [
  ...['"', '""', '\\', '\\\\', '\\"', "'", "''", `'; drop table x --`, '$1', '$$', '--', '/*', '?'],
  ...['{', '}', '{}', '{a,b}', ',', ',,', '{"a":[1]}', '(1,2)', '[0:1]={1,2}'],
  ...[' ', '  ', ' a', 'a ', '\t', '\n', '\r\n', 'a\nb', '\u00a0', '\u2028'],
  ...['NULL', 'null', '"NULL"', 'true', '0', '-1', '1e5', '__proto__', 'constructor'],
  ...['é', 'e\u0301', 'ß', 'ı', '日本語', '👩‍👩‍👧', '👩', '\u{10ffff}', 'a\ufeff', '\u0001', '\u007f'],
]

describe('an array as text', () => {
  test.each([
    { values: [], text: '{}' },
    { values: ['a', 'b'], text: '{"a","b"}' },
    { values: ['"', '\\'], text: String.raw`{"\"","\\"}` },
    { values: ['NULL', ',', '{}'], text: '{"NULL",",","{}"}' },
  ])('of $values is $text', ({ values, text }) => {
    expect(textArray(values)).toBe(text)
  })

  test('is read by Postgres as the values that it was made of', async () => {
    const [row] = await database.rows('select to_json($1::text[])::text as read', [textArray(AWKWARD)])
    expect(JSON.parse(String(row?.['read']))).toEqual(AWKWARD)
  })

  test('of numbers keeps them exact', async () => {
    const numbers = [0, -0.1, 1e-250, 5e-324, 0.1 + 0.2, 2 ** 53 - 1, -(2 ** 53) + 1, 1.7976931348623157e308]
    const [row] = await database.rows('select to_json($1::text::float8[])::text as read', [
      numberArray(numbers),
    ])
    expect(JSON.parse(String(row?.['read']))).toEqual(numbers)
    expect(numberArray([])).toBe('{}')
  })
})

test('the order of texts is one order, and the same for equal ones', () => {
  const sorted = AWKWARD.toSorted(compareText)
  expect(AWKWARD.toReversed().toSorted(compareText)).toEqual(sorted)
  expect(compareText('a', 'a')).toBe(0)
})

test('awkward keys in one batch: each is counted in a row of its own', async () => {
  const ratelimit = new Ratelimit({
    ...{ db: database.db, limiter: Ratelimit.fixedWindow(1000, '1h'), prefix: `'"\\{$1}` },
    ...{ cleanupProbability: 0, connections: 1 },
  })
  const all = (rate: number) =>
    Promise.all(AWKWARD.map((key, i) => ratelimit.limit(key, { rate: rate * (i + 1) })))
  for (const [i, { remaining }] of (await all(1)).entries()) expect(remaining).toBe(1000 - (i + 1))
  for (const [i, { remaining }] of (await all(2)).entries()) expect(remaining).toBe(1000 - 3 * (i + 1))
  for (const [i, key] of AWKWARD.entries()) {
    expect(await ratelimit.getRemaining(key)).toMatchObject({ used: 3 * (i + 1) })
  }
  const stored = await database.rows(
    'select key, count::int as count from rate_limit_ephemeral where prefix = $1',
    [`'"\\{$1}`],
  )
  expect(new Map(stored.map(({ key, count }) => [key, count]))).toEqual(
    new Map(AWKWARD.map((key, i) => [key, 3 * (i + 1)])),
  )
})
