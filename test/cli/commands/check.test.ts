import { pgSchema } from 'drizzle-orm/pg-core'
import { expect, onTestFinished, test } from 'vitest'
import { cli } from '../../../src/cli/cli.ts'
import { rateLimitTables, storageSql, tableSql } from '../../../src/index.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'

// `drizzle-ratelimit check` in a database whose tables of the limiter have other names than expected.

async function databaseWith(...scripts: readonly string[]): Promise<TestDatabase> {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  for (const script of scripts) await database.script(script)
  return database
}

async function check(database: TestDatabase, ...args: readonly string[]): Promise<string> {
  const lines: string[] = []
  const print = (line: string) => void lines.push(line)
  await cli(['check', database.url, ...args], { log: print, error: print })
  return lines.join('\n')
}

async function codeOf(database: TestDatabase, ...args: readonly string[]): Promise<number> {
  return cli(['check', database.url, ...args], { log: () => {}, error: () => {} })
}

const scriptOf = (statements: readonly string[]) => statements.join(';\n')

const prefixed = rateLimitTables({ ephemeral: 'app_rate_limit_ephemeral', durable: 'app_rate_limit_durable' })
const inSchema = rateLimitTables({ schema: pgSchema('limits') })
const both = rateLimitTables({ schema: pgSchema('my limits'), ephemeral: 'quick', durable: 'the_durable' })
const unclear = rateLimitTables({ ephemeral: 'quick', durable: 'slow' })

test.each([
  [
    'names by tablesFilter',
    tableSql(prefixed),
    '--ephemeral app_rate_limit_ephemeral --durable app_rate_limit_durable',
  ],
  ['another schema', tableSql(inSchema), 'add --schema limits.'],
  [
    'both, with storage',
    [...tableSql(both), ...storageSql(both)],
    `--schema 'my limits' --ephemeral quick --durable the_durable`,
  ],
  [
    'names that do not tell',
    tableSql(unclear),
    'quick and slow: add --ephemeral and --durable with their names.',
  ],
])('says which options are missing: %s', async (_, statements, said) => {
  const printed = await check(await databaseWith(scriptOf(statements)))
  expect(printed).toContain('rate_limit_ephemeral is missing')
  expect(printed).toContain(said)
})

test('says nothing of other tables if the expected ones are there', async () => {
  const database = await databaseWith(
    scriptOf(tableSql()),
    scriptOf(tableSql(prefixed)),
    scriptOf(tableSql(inSchema)),
  )
  const printed = await check(database)
  expect(printed).toContain('is logged')
  expect(printed).not.toContain('add --')
})

test('takes tables that are on the search path for the expected ones', async () => {
  const database = await databaseWith(scriptOf(tableSql(inSchema)), scriptOf(storageSql(inSchema)))
  const url = new URL(database.url)
  url.searchParams.set('options', '-c search_path=limits')
  const said = 'rate_limit_ephemeral and rate_limit_durable are as the limiter expects them.'
  expect(await check({ ...database, url: url.href })).toBe(said)
})

test('names drizzle-kit’s filters, where a table is missing', async () => {
  const printed = await check(await databaseWith('create table prefix (key text)'))
  for (const said of ['schemaFilter', 'tablesFilter']) expect(printed).toContain(said)
  expect(printed).not.toContain('add --')
})

test('says which limits have live rows in the table that they do not use', async () => {
  const database = await databaseWith(scriptOf(tableSql()), scriptOf(storageSql()))
  const module = ['--limits', 'test/cli/commands/limits.js']
  expect(await check(database, ...module)).toContain('are as the limiter expects them')
  const insert = (table: string, prefix: string, key: string, expires: string) =>
    database.rows(`insert into ${table} (prefix, key, expires_at) values ($1, $2, ${expires})`, [prefix, key])
  await insert('rate_limit_ephemeral', 'exports', 'a', "now() + interval '1 day'")
  await insert('rate_limit_ephemeral', 'exports', 'ended', "now() - interval '1 day'")
  await insert('rate_limit_durable', 'exports', 'a', "now() + interval '1 day'")
  await insert('rate_limit_ephemeral', 'requests', 'a', "now() + interval '1 day'")
  for (const table of ['rate_limit_ephemeral', 'rate_limit_durable']) {
    await insert(table, 'tokens', table, "now() + interval '1 day'")
    await insert(table, 'calls', table, "now() + interval '1 day'")
  }
  const printed = await check(database, ...module)
  expect(printed).toContain('"exports" has 1 live row in "rate_limit_ephemeral"')
  expect(printed).not.toContain('requests')
  expect(printed).toContain('"tokens" has 1 live row in "rate_limit_ephemeral"')
  expect(printed).toContain('"calls" has 1 live row in "rate_limit_durable"')
})

test('prints the differences without SQL, and one migration that removes them', async () => {
  const database = await databaseWith(scriptOf(tableSql()), scriptOf(storageSql()))
  await database.script(`alter table rate_limit_ephemeral set logged;
    alter table rate_limit_durable drop column tokens;
    create role reader_of_check; grant insert on rate_limit_durable to reader_of_check`)
  onTestFinished(async () => database.script('drop owned by reader_of_check; drop role reader_of_check'))
  const said = await check(database)
  expect(said).toContain('rate_limit_ephemeral is logged and should be UNLOGGED.\n')
  expect(said).toMatch(/\n3 differences\. `--fix` prints/)
  expect(said).not.toContain('ALTER')
  const migration = await check(database, '--fix')
  expect(migration).toMatch(/^-- rate_limit_durable can be changed by reader_of_check: /)
  expect(migration.split('--> statement-breakpoint')).toHaveLength(2)
  await database.script(migration)
  expect(await codeOf(database)).toBe(1)
  await database.script('revoke all on rate_limit_durable from reader_of_check')
  expect(await codeOf(database)).toBe(0)
  expect(await check(database, '--fix')).toBe('-- There is nothing to change.')
})

test('writes JSON for scripts', async () => {
  const database = await databaseWith(scriptOf(tableSql()), scriptOf(storageSql()))
  await database.script('create schema limits; alter table rate_limit_durable set schema limits')
  expect(JSON.parse(await check(database, '--json'))).toEqual({
    tables: ['rate_limit_ephemeral', 'rate_limit_durable'],
    differences: [
      {
        message: expect.stringContaining('rate_limit_durable is missing'),
        sql: expect.arrayContaining([expect.stringContaining('CREATE TABLE')]),
      },
    ],
    notes: ['The schema limits has tables like these, rate_limit_durable: add --schema limits.'],
  })
})

test('says what surrounds the tables, which is no difference', async () => {
  const { ephemeral, durable } = rateLimitTables()
  const [table = ''] = tableSql({ ephemeral, durable }).filter((sql) =>
    sql.includes('"rate_limit_durable" ('),
  )
  const parted = `${table} partition by list (prefix); create table part partition of rate_limit_durable default`
  const database = await databaseWith(parted, scriptOf(tableSql()))
  await database.script(await check(database, '--fix'))
  await database.script(`create function nothing() returns trigger language plpgsql as 'begin return new; end';
    create trigger audit before insert on rate_limit_durable for each row execute function nothing();
    create publication changes for table rate_limit_durable;
    alter table rate_limit_durable enable row level security`)
  const said = await check(database)
  expect(said.split('\n')).toEqual([
    expect.stringMatching(
      /^rate_limit_durable is partitioned by LIST \(prefix\): a key without a partition fails/,
    ),
    expect.stringMatching(/^rate_limit_durable has the trigger audit: each write waits for it/),
    expect.stringMatching(/^rate_limit_durable is in the publication changes: each charge is also sent/),
    expect.stringMatching(/^rate_limit_durable has row level security, and \w+ sees all rows/),
    'rate_limit_ephemeral and rate_limit_durable are as the limiter expects them.',
  ])
  expect(await codeOf(database)).toBe(0)
})

test('says which privileges its role lacks', async () => {
  const database = await databaseWith(scriptOf(tableSql()), scriptOf(storageSql()))
  await database.script(`create role user_of_check login password 'x';
    grant select, insert on rate_limit_durable to user_of_check;
    grant all on rate_limit_ephemeral to user_of_check`)
  onTestFinished(async () => database.script('drop owned by user_of_check; drop role user_of_check'))
  const url = new URL(database.url)
  Object.assign(url, { username: 'user_of_check', password: 'x' })
  const own = { ...database, url: url.href }
  expect(await check(own)).toContain(
    'rate_limit_durable gives this role, user_of_check, no UPDATE, DELETE: calls',
  )
  await database.script(await check(own, '--fix'))
  expect(await codeOf(own)).toBe(0)
})
