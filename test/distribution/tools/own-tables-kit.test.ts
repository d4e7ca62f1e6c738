import { pgSchema } from 'drizzle-orm/pg-core'
import { expect, onTestFinished, test } from 'vitest'
import { checkTables, Ratelimit, rateLimitTables, type TableDifference } from '../../../src/index.ts'
import { catalogsOf } from '../../support/catalogs.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'
import { copyForKit } from './kit.ts'

// Slow: each test starts drizzle-kit.

/** What drizzle-kit writes for someone's schema file, run on an empty database. */
async function generated(schemaFile: string): Promise<{ sql: string; database: TestDatabase }> {
  const project = await copyForKit()
  await project.write('own.ts', schemaFile)
  await project.kit('generate', '--dialect', 'postgresql', '--schema', 'own.ts', '--out', 'own')
  const files = Object.entries(await project.read('own'))
  const sql = files.flatMap(([name, text]) => (name.endsWith('.sql') ? [text] : [])).join('\n')
  const database = await empty()
  await database.script(sql)
  return { sql, database }
}

async function empty(): Promise<TestDatabase> {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  return database
}

/** All but what drizzle-kit cannot know. */
function beyondStorage(differences: readonly TableDifference[]): TableDifference[] {
  return differences.filter(({ message }) => !/UNLOGGED|storage parameter|statistics/.test(message))
}

test('the tables in an exported pgSchema are found, and so is the schema', async () => {
  const { sql, database } = await generated(`
    import { pgSchema } from 'drizzle-orm/pg-core'
    import { rateLimitTables } from './schema/index.ts'

    export const limits = pgSchema('limits')
    export const { ephemeral, durable } = rateLimitTables({ schema: limits })
  `)
  for (const made of [
    'SCHEMA "limits"',
    'TABLE "limits"."rate_limit_ephemeral"',
    'TABLE "limits"."rate_limit_durable"',
  ]) {
    expect(sql).toContain(`CREATE ${made}`)
  }
  const tables = rateLimitTables({ schema: pgSchema('limits') })
  expect(beyondStorage(await checkTables(database.db, tables))).toEqual([])
})

test('tables of other names, in public', async () => {
  const { sql, database } = await generated(`
    import { rateLimitTables } from './schema/index.ts'

    export const { ephemeral: one, durable: two } = rateLimitTables({ ephemeral: 'one', durable: 'two' })
  `)
  expect(sql).not.toContain('CREATE SCHEMA')
  const tables = rateLimitTables({ ephemeral: 'one', durable: 'two' })
  expect(beyondStorage(await checkTables(database.db, tables))).toEqual([])
})

test("the shipped tables, exported from someone's schema file", async () => {
  const { database } = await generated("export * from './schema/index.ts'")
  expect(beyondStorage(await checkTables(database.db))).toEqual([])
})

test('autoMigrate gives columns, constraints and indexes the names and types that drizzle-kit gives them', async () => {
  const { database } = await generated(`
    import { pgSchema } from 'drizzle-orm/pg-core'
    import { rateLimitTables } from './schema/index.ts'

    export const limits = pgSchema('limits')
    export const { ephemeral, durable } = rateLimitTables({ schema: limits, ephemeral: 'a', durable: 'The B' })
  `)
  const migrated = await empty()
  const tables = rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'a', durable: 'The B' })
  const limiter = Ratelimit.fixedWindow(5, '1m')
  await new Ratelimit({ db: migrated.db, limiter, prefix: 'own', tables, autoMigrate: true }).limit('key')
  const withoutStorage = (lines: string[]) => lines.map((line) => line.replace(/, persistence .*/, ''))
  expect(withoutStorage(await catalogsOf(migrated, 'limits'))).toEqual(
    withoutStorage(await catalogsOf(database, 'limits')),
  )
})
