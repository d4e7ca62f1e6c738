import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { compareText, numberArray, textArray } from '../../../src/kernel/sql/calls.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()

/** Texts that mean something in an array of Postgres, in SQL or in JSON; and some that only look alike. */
const AWKWARD = [
  ...['"', '""', '\\', '\\\\', '\\"', "'", "''", `'; drop table x --`, '$1', '$$', '--', '/*', '?'],
  ...['{', '}', '{}', '{a,b}', ',', ',,', '{"a":[1]}', '(1,2)', '[0:1]={1,2}'],
  ...[' ', '  ', ' a', 'a ', '\t', '\n', '\r\n', 'a\nb', '\u00a0', '\u2028'],
  ...['NULL', 'null', '"NULL"', 'true', '0', '-1', '1e5', '__proto__', 'constructor'],
  // Of one that is not escaped, Postgres would read several: the row of somebody else.
  ...['a","b', 'a\\","b', 'a"', 'a\\', '","', '}","{'],
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

  test('is read by Postgres as the same values', async () => {
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

describe('awkward prefixes and keys', () => {
  const LIMIT = 1000
  const limiter = Ratelimit.fixedWindow(LIMIT, '1h')
  const ratelimitOf = (prefix: string, durable = false) =>
    new Ratelimit({ db: database.db, limiter, prefix, durable, cleanupProbability: 0, connections: 1 })

  async function stored(
    prefix: string,
    table = 'rate_limit_ephemeral',
  ): Promise<ReadonlyMap<unknown, unknown>> {
    const rows = await database.rows(`select key, count::int as count from ${table} where prefix = $1`, [
      prefix,
    ])
    return new Map(rows.map(({ key, count }) => [key, count]))
  }

  /** Each key has used its own amount. */
  function usedTimes(times: number): ReadonlyMap<string, number> {
    return new Map(AWKWARD.map((key, i) => [key, times * (i + 1)]))
  }

  test('each key of one batch is counted in a row of its own: made, taken from, and looked at', async () => {
    const prefix = `'"\\{$1}`
    const ratelimit = ratelimitOf(prefix)
    const all = (rate: number) =>
      Promise.all(AWKWARD.map((key, i) => ratelimit.limit(key, { rate: rate * (i + 1) })))
    for (const [i, { remaining }] of (await all(1)).entries()) expect(remaining).toBe(LIMIT - (i + 1))
    expect(await stored(prefix)).toEqual(usedTimes(1))
    for (const [i, { remaining }] of (await all(2)).entries()) expect(remaining).toBe(LIMIT - 3 * (i + 1))
    expect(await stored(prefix)).toEqual(usedTimes(3))
    const looks = await Promise.all(AWKWARD.map((key) => ratelimit.getRemaining(key)))
    expect(looks.map(({ used }) => used)).toEqual([...usedTimes(3).values()])
  })

  test('a key that spells the end of an array and the next value touches no row but its own', async () => {
    const ratelimit = ratelimitOf('spelled')
    await ratelimit.limit('victim', { rate: 3 })
    const attack = () =>
      Promise.all(['attacker","victim', 'attacker\\","victim', 'other'].map((key) => ratelimit.limit(key)))
    for (let times = 1; times <= 2; times++) {
      for (const answer of await attack()) expect(answer).toMatchObject({ remaining: LIMIT - times })
    }
    expect(await ratelimit.getRemaining('victim')).toMatchObject({ used: 3 })
  })

  test.each([
    ['alone', 0],
    ['joined', 0],
    ['alone', 1],
    ['joined', 1],
  ] as const)('limitAll counts each in a row of its own, %s: half %d', async (how, half) => {
    const way = `${how} ${half}`
    // A list has at most 50 rows.
    const requests = AWKWARD.filter((_, i) => i % 2 === half).map((key, i) => ({
      ratelimit: ratelimitOf(`${way} ${AWKWARD[i % 7]}`, i % 2 === 0),
      ...{ key, rate: i + 1 },
    }))
    const check = (all: Parameters<typeof limitAll>[0]) =>
      how === 'alone' ? limitAll(all) : database.db.transaction((tx) => limitAll(all, { tx }))
    const counts = async () => {
      const found: unknown[] = []
      for (const { ratelimit, key } of requests) found.push((await ratelimit.getRemaining(key)).used)
      return found
    }
    // Denied, so that the rows that were made for it are removed again.
    const denied = await check([
      ...requests,
      { ratelimit: ratelimitOf(`${way} denies`), key: 'key', rate: LIMIT + 1 },
    ])
    expect(denied.success).toBe(false)
    for (const table of ['rate_limit_ephemeral', 'rate_limit_durable']) {
      for (const { ratelimit } of requests) expect(await stored(ratelimit.prefix, table)).toEqual(new Map())
    }
    expect(await check(requests)).toMatchObject({ success: true })
    expect(await counts()).toEqual(requests.map(({ rate }) => rate))
    expect(await check(requests)).toMatchObject({ success: true })
    expect(await counts()).toEqual(requests.map(({ rate }) => 2 * rate))
  })
})
