import { sql } from 'drizzle-orm'
import { pgSchema } from 'drizzle-orm/pg-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  checkTables,
  Ratelimit,
  rateLimitTables,
  type StorageOptions,
  storageSql,
  type TableDifference,
  tableSql,
} from '../../../src/index.ts'
import { emptyDatabase, type TestDatabase, useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'
import { useWarnings } from '../../support/warnings.ts'
import { shipped } from './shipped.ts'

const database = useDatabase()
const warn = useWarnings()

const own = rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'quick', durable: 'The "B"' })
beforeAll(async () => {
  const limiter = Ratelimit.fixedWindow(1, '1m')
  const creates = { db: database.db, limiter, prefix: 'creates', tables: own, autoMigrate: true }
  await new Ratelimit(creates).cleanup()
})

/** What checkTables says after the changes, which are then undone. If it has SQL for all, that mends all. */
async function differencesAfter(
  changes: readonly string[],
  tables = shipped,
  options: StorageOptions = {},
): Promise<string[]> {
  let found: TableDifference[] = []
  await undone(database.db, async (tx) => {
    for (const change of changes) await tx.execute(sql.raw(change))
    found = await checkTables(tx, tables, options)
    const statements = found.flatMap((difference) => difference.sql ?? [])
    if (found.every((difference) => difference.sql)) {
      for (const statement of statements) await tx.execute(sql.raw(statement))
      expect(await checkTables(tx, tables, options)).toEqual([])
    }
  })
  return found.map(({ message, sql }) => `${message}${sql ? '' : ' No SQL.'}`)
}

test('checkTables finds nothing after the migrations', async () => {
  expect(await checkTables(database.db)).toEqual([])
  expect(await checkTables(database.db, shipped)).toEqual([])
})

describe('before and halfway through migrating', () => {
  let empty: TestDatabase
  beforeAll(async () => {
    empty = await emptyDatabase()
  })
  afterAll(() => empty.close())

  test('missing tables: the import to add', async () => {
    const found = await checkTables(empty.db)
    const words = found.map(({ message }) => message)
    expect(words).toEqual([
      expect.stringContaining('rate_limit_ephemeral is missing'),
      expect.stringContaining('rate_limit_durable is missing'),
    ])
    for (const each of words) expect(each).toContain("export * from 'drizzle-ratelimit/schema'")
  })

  test('without the storage migration: logged, and the storage parameters of both', async () => {
    for (const statement of tableSql()) await empty.db.execute(statement)
    const found = await checkTables(empty.db)
    const words = found.map(({ message }) => message)
    expect(found[0]).toEqual({
      message: 'rate_limit_ephemeral is logged and should be UNLOGGED.',
      sql: ['ALTER TABLE "rate_limit_ephemeral" SET UNLOGGED'],
    })
    const parameters = words.filter((each) => /storage parameter/.test(each))
    expect(parameters).toHaveLength(8)
    expect(parameters.filter((each) => each.startsWith('rate_limit_durable '))).toHaveLength(4)
    expect(words.filter((each) => /statistics/.test(each))).toHaveLength(2)
    expect(words).toHaveLength(1 + 8 + 2)
    for (const { sql } of found) for (const statement of sql ?? []) await empty.db.execute(statement)
    expect(await checkTables(empty.db)).toEqual([])
  })
})

type Difference = readonly [what: string, changes: readonly string[], said: readonly string[]]

// SQL where T stands for the table, and what the one sentence must hold besides the table's name.
const differences: readonly Difference[] = [
  ['a missing table', ['drop table T'], ['missing']],
  ['a missing column', ['alter table T drop column tokens'], ['tokens', 'double precision']],
  ['another type', ['alter table T alter count type integer'], ['count', 'integer', 'bigint']],
  [
    'another precision',
    ['alter table T alter window_start type timestamptz(0)'],
    ['window_start', 'timestamp(0) with time zone'],
  ],
  ['a column that may not be null', ['alter table T alter tokens set not null'], ['tokens', 'NOT NULL']],
  ['a column that may be null', ['alter table T alter expires_at drop not null'], ['expires_at', 'NOT NULL']],
  ['one more column that wants filling', ['alter table T add tenant text not null'], ['tenant', 'NOT NULL']],
  ['no primary key', ['alter table T drop constraint PK'], ['primary key', '(prefix, key)']],
  [
    'a primary key in another order',
    ['alter table T drop constraint PK', 'alter table T add primary key (key, prefix)'],
    ['primary key', '(prefix, key)'],
  ],
  [
    'a primary key on more columns',
    ['alter table T drop constraint PK', 'alter table T add primary key (prefix, key, expires_at)'],
    ['primary key', '(prefix, key)'],
  ],
  [
    'a unique index instead of the primary key',
    ['alter table T drop constraint PK', 'create unique index on T (prefix, key)'],
    ['primary key', '(prefix, key)'],
  ],
  [
    'a primary key that is checked later',
    ['alter table T drop constraint PK', 'alter table T add primary key (prefix, key) deferrable'],
    ['primary key', '(prefix, key)'],
  ],
  [
    'a unique index of some rows',
    ['create unique index on T (prefix) where tokens > 0'],
    ['unique', '(prefix)'],
  ],
  ['no index', ['drop index INDEX'], ['index', '(prefix, expires_at)']],
  [
    'an index in another order',
    ['drop index INDEX', 'create index on T (expires_at, prefix)'],
    ['index', '(prefix, expires_at)'],
  ],
  [
    'another index under the name of the index',
    ['drop index INDEX', 'create index NAME on T (prefix)'],
    ['index', '(prefix, expires_at)'],
  ],
  [
    'a unique constraint',
    ['alter table T add constraint only_one unique (prefix, tokens)'],
    ['unique', '(prefix, tokens)'],
  ],
  [
    'an index of some rows only',
    ['drop index INDEX', 'create index on T (prefix, expires_at) where tokens > 0'],
    ['index', '(prefix, expires_at)'],
  ],
  [
    'an index of something like it',
    ['drop index INDEX', 'create index on T (lower(prefix), expires_at)'],
    ['index', '(prefix, expires_at)'],
  ],
  [
    'a unique index where two rows may be equal',
    ['drop index INDEX', 'create unique index on T (prefix, expires_at)'],
    ['(prefix, expires_at)'],
  ],
  ['a missing storage parameter', ['alter table T reset (fillfactor)'], ['fillfactor', '70']],
  [
    'another storage parameter',
    ['alter table T set (autovacuum_vacuum_scale_factor = 0.2)'],
    ['autovacuum_vacuum_scale_factor', '0.02'],
  ],
]

describe.each([
  { table: 'rate_limit_ephemeral', quoted: 'rate_limit_ephemeral', schema: '', tables: shipped },
  { table: 'rate_limit_durable', quoted: 'rate_limit_durable', schema: '', tables: shipped },
  { table: 'quick', quoted: 'quick', schema: 'limits.', tables: own },
  { table: 'The "B"', quoted: '"The ""B"""', schema: 'limits.', tables: own },
])('$schema$table', ({ table, quoted, schema, tables }) => {
  const named = (end: string) => `"${table.replaceAll('"', '""')}_${end}"`
  const fill = (change: string) =>
    change
      .replaceAll('NAME', named('prefix_expires_at_index'))
      .replaceAll('INDEX', `${schema}${named('prefix_expires_at_index')}`)
      .replaceAll('PK', named('prefix_key_pk'))
      .replaceAll(/\bT\b/g, `${schema}${quoted}`)

  test('finds no difference', async () => {
    expect(await checkTables(database.db, tables)).toEqual([])
  })

  test.each(differences)('%s', async (_, changes, said) => {
    const words = await differencesAfter(changes.map(fill), tables)
    expect(words).toHaveLength(1)
    for (const piece of [table, ...said]) expect(words[0]).toContain(piece)
  })

  test.each([
    ['a column that may be null', ['alter table T add note text']],
    ['a column with a default', ['alter table T add made_at timestamptz not null default now()']],
    ['an identity', ['alter table T add id bigint generated always as identity']],
    ['an index', ['create index on T (key)']],
    ['another unique index on the key', ['create unique index on T (prefix, key)']],
    ['a unique index on the key and more', ['create unique index on T (key, expires_at, prefix)']],
    [
      'other names of the key and the index',
      ['alter table T rename constraint PK to k', 'alter index INDEX rename to i'],
    ],
    ['another storage parameter', ['alter table T set (toast_tuple_target = 128)']],
  ])('ignores a harmless difference: %s', async (_, changes) => {
    expect(await differencesAfter(changes.map(fill), tables)).toEqual([])
  })
})

test('reports a durable table that is UNLOGGED', async () => {
  const words = await differencesAfter(['alter table rate_limit_durable set unlogged'])
  expect(words).toEqual([expect.stringMatching(/^rate_limit_durable .*crash/)])
  expect(await differencesAfter(['alter table limits."The ""B""" set unlogged'], own)).toEqual([
    expect.stringMatching(/^limits\.The "B" .*crash/),
  ])
})

test('reports an ephemeral table that is logged', async () => {
  const words = await differencesAfter(['alter table limits.quick set logged'], own)
  expect(words).toEqual([expect.stringMatching(/^limits\.quick .*should be UNLOGGED/)])
})

describe('an ephemeral table that is logged on purpose', () => {
  const logged = { logged: true }
  let database: TestDatabase
  beforeAll(async () => {
    database = await emptyDatabase()
    const statements = [...tableSql(), ...storageSql(shipped, logged)]
    for (const statement of statements) await database.db.execute(statement)
  })
  afterAll(() => database.close())

  test('is right, if all else is as shipped', async () => {
    expect(await checkTables(database.db, shipped, logged)).toEqual([])
    expect(await checkTables(database.db)).toEqual([
      {
        message: 'rate_limit_ephemeral is logged and should be UNLOGGED.',
        sql: ['ALTER TABLE "rate_limit_ephemeral" SET UNLOGGED'],
      },
    ])
  })

  test('is wrong if it is UNLOGGED', async () => {
    await database.script('alter table rate_limit_ephemeral set unlogged')
    const found = await checkTables(database.db, shipped, logged)
    expect(found.map(({ message }) => message)).toEqual([
      'rate_limit_ephemeral is UNLOGGED and should be logged, because a crash empties it.',
    ])
    for (const statement of found[0]?.sql ?? []) await database.db.execute(statement)
    expect(await checkTables(database.db, shipped, logged)).toEqual([])
  })

  test('a missing one is made logged', async () => {
    await database.script('drop table rate_limit_ephemeral')
    const [missing] = await checkTables(database.db, shipped, logged)
    for (const statement of missing?.sql ?? []) await database.db.execute(statement)
    expect(await checkTables(database.db, shipped, logged)).toEqual([])
  })
})

test('on Neon, an UNLOGGED table is no difference but a warning, once', async () => {
  const onNeon = "set local neon.timeline_id = '0123'"
  const logged = 'alter table rate_limit_ephemeral set logged'
  expect(await differencesAfter([])).toEqual([])
  expect(await differencesAfter([onNeon, logged], shipped, { logged: true })).toEqual([])
  expect(warn).not.toHaveBeenCalled()
  for (let times = 0; times < 2; times++) expect(await differencesAfter([onNeon])).toEqual([])
  expect(warn).toHaveBeenCalledOnce()
  expect(warn).toHaveBeenCalledWith(expect.stringContaining('UNLOGGED_ON_NEON: The server is Neon'))
})

test('all differences of both tables are reported, not just the first', async () => {
  const words = await differencesAfter([
    'drop table rate_limit_ephemeral',
    'alter table rate_limit_durable drop column tokens, drop column count, alter last_refill type date',
  ])
  expect(words).toEqual([
    expect.stringContaining('rate_limit_ephemeral'),
    expect.stringContaining('count'),
    expect.stringContaining('tokens'),
    expect.stringContaining('last_refill'),
  ])
})

test('a foreign column in the primary key is reported', async () => {
  const words = await differencesAfter([
    'alter table rate_limit_durable drop constraint rate_limit_durable_prefix_key_pk, add tenant text',
    'alter table rate_limit_durable add primary key (tenant, prefix, key)',
  ])
  expect(words).toEqual([
    expect.stringContaining('has no primary key on (prefix, key).'),
    expect.stringContaining('has a column tenant that is NOT NULL'),
  ])
})

test.each([
  ['last_refill type timestamp', true],
  ['last_refill type date', true],
  ['last_refill type timestamptz(3)', false],
  ['count type numeric', true],
  ['count type smallint', false],
  ['tokens type real', false],
  ['key type char(9)', true],
  ['key type varchar(9)', false],
])('a type has SQL only if no value changes: %s', async (change, without) => {
  const words = await differencesAfter([`alter table rate_limit_durable alter ${change}`])
  expect(words).toHaveLength(1)
  expect(words[0]?.endsWith('No SQL.')).toBe(without)
})

test('a collation by which different keys are equal is reported', async () => {
  const words = await differencesAfter([
    "create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    'alter table rate_limit_durable alter key type text collate loose',
  ])
  expect(words).toEqual([
    'rate_limit_durable has a column key of type text COLLATE loose that should be text.',
  ])
})

test('SQL that fails because of rows changes nothing', async () => {
  const limiter = Ratelimit.fixedWindow(1, '1m')
  await new Ratelimit({ db: database.db, limiter, prefix: 'in the way', durable: true }).limit('key')
  await database.script('alter table rate_limit_durable rename expires_at to gone')
  const [difference] = await checkTables(database.db)
  const [statement] = difference?.sql ?? []
  await expect(database.script(String(statement))).rejects.toThrow('contains null values')
  await database.script(
    'alter table rate_limit_durable rename gone to expires_at; truncate rate_limit_durable',
  )
  expect(await checkTables(database.db)).toEqual([])
})

test('a table without columns', async () => {
  const changes = ['drop table rate_limit_durable', 'create table rate_limit_durable ()']
  expect((await differencesAfter(changes)).filter((each) => /has no column/.test(each))).toHaveLength(8)
})

test('a name in the database cannot move the cursor, and the SQL quotes it unchanged', async () => {
  const name = 'ten\u001b[2Jant\nrate_limit_durable is missing'
  await database.script(`alter table rate_limit_durable add "${name}" text not null`)
  const [difference] = await checkTables(database.db)
  await database.script(`alter table rate_limit_durable drop "${name}"`)
  expect(difference?.message).toContain('a column ten\ufffd[2Jant\ufffdrate_limit_durable is missing that')
  expect(difference?.sql?.join()).toContain(`"${name}"`)
})

test('a missing Postgres schema is two missing tables', async () => {
  const nowhere = rateLimitTables({ schema: pgSchema('nowhere') })
  expect(await differencesAfter([], nowhere)).toEqual([
    expect.stringMatching(/^nowhere\.rate_limit_ephemeral is missing/),
    expect.stringMatching(/^nowhere\.rate_limit_durable is missing/),
  ])
})
