import fc from 'fast-check'
import { expect, test } from 'vitest'
import { hashText } from '../../../src/citus/hash.ts'
import { Shards } from '../../../src/citus/shards.ts'
import { textArray } from '../../../src/kernel/sql/calls.ts'
import { useDatabase } from '../../support/databases.ts'
import { anySeed } from '../../support/runs.ts'

const database = useDatabase()

test("hashText is Postgres' hashtext, by which Citus finds the shard of a key", async () => {
  const anyKey = fc
    .string({ unit: 'binary', maxLength: 60 })
    .filter((key) => !key.includes('\0') && key.isWellFormed())
  const keys = fc.sample(anyKey, { numRuns: 2_000, seed: anySeed() })
  const rows = await database.rows(
    'select hashtext(key) as hash from unnest($1::text[]) with ordinality as of (key, place) order by place',
    [textArray(keys)],
  )
  expect(rows.map(({ hash }) => hash)).toEqual(keys.map(hashText))
})

test('a key is on the shard with the highest start that is not above its hash', () => {
  const key = 'user:123'
  const hash = hashText(key)
  expect(new Shards('one', []).of(key)).toBe(0)
  expect(new Shards('four', [-(2 ** 31), hash - 1, hash, hash + 1]).of(key)).toBe(2)
  expect(new Shards('last', [-(2 ** 31), hash - 1, hash]).of(key)).toBe(2)
  expect(new Shards('first', [-(2 ** 31), hash + 1]).of(key)).toBe(0)
})
