import { sql } from 'drizzle-orm'
import { expect, test } from 'vitest'
import { checkTables, type TableDifference } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()

const LOGGED = 'rate_limit_durable'
const UNLOGGED = 'rate_limit_ephemeral'

/** What is found after the changes, and after its SQL, with the changes then undone. */
async function found(changes: readonly string[]): Promise<{ before: TableDifference[]; after: string[] }> {
  let before: TableDifference[] = []
  let after: string[] = []
  await undone(database.db, async (tx) => {
    for (const change of changes) await tx.execute(sql.raw(change))
    before = await checkTables(tx)
    for (const statement of before.flatMap((each) => each.sql ?? [])) await tx.execute(sql.raw(statement))
    after = (await checkTables(tx)).map(({ message }) => message)
  })
  return { before, after }
}

test.each([UNLOGGED, LOGGED])(
  '%s with partitions: each has storage, and the whole has none',
  async (table) => {
    const { before, after } = await found([
      `alter table ${table} rename to old`,
      `create table ${table} (like old including all) partition by hash (key)`,
      'drop table old',
      `create table ${table}_0 partition of ${table} for values with (modulus 2, remainder 0)`,
      `create table "${table} b" partition of ${table} for values with (modulus 2, remainder 1)`,
    ])
    const messages = before.map(({ message }) => message)
    expect(messages.filter((each) => each.includes(`has the partition ${table}_0, which `))).toEqual([
      ...(table === UNLOGGED ? [expect.stringContaining('is logged and should be UNLOGGED')] : []),
      ...Array(4).fill(expect.stringContaining('should have the storage parameter')),
      expect.stringContaining('should have no statistics of the column prefix'),
    ])
    expect(messages.filter((each) => each.includes(`"${table} b"`))).toHaveLength(messages.length / 2)
    expect(after).toEqual([])
  },
)

test('a table that inherits is reported, and its SQL leaves its rows', async () => {
  const { before, after } = await found([
    'create schema archive',
    `create table archive.year () inherits (${LOGGED})`,
    `insert into archive.year (prefix, key, expires_at) values ('p', 'k', now())`,
  ])
  expect(before).toEqual([
    {
      message: `${LOGGED} is inherited by archive.year, whose rows calls would count and change as its own.`,
      sql: [`ALTER TABLE archive.year NO INHERIT "${LOGGED}"`],
    },
  ])
  expect(after).toEqual([])
})
