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
