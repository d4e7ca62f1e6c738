import { expect, inject, onTestFinished, test } from 'vitest'
import { emptyDatabase } from '../../support/databases.ts'
import { createProject, type Project } from './project.ts'

// Slow: someone's project installs the tarball and runs the commands of docs/migrations.md.

const installed = inject('installed')

interface Kind {
  readonly drizzle: '0.45' | '1.0'
  readonly module: 'module' | 'commonjs'
  readonly tables: 'shipped' | 'own'
}

/** Each pair of choices meets once. */
const KINDS: readonly Kind[] = [
  { drizzle: '0.45', module: 'module', tables: 'shipped' },
  { drizzle: '0.45', module: 'commonjs', tables: 'own' },
  { drizzle: '1.0', module: 'module', tables: 'own' },
  { drizzle: '1.0', module: 'commonjs', tables: 'shipped' },
]

const SCHEMA = {
  shipped: `export * from 'drizzle-ratelimit/schema'\n`,
  own: `import { pgSchema } from 'drizzle-orm/pg-core'
    import { rateLimitTables } from 'drizzle-ratelimit/schema'

    export const limits = pgSchema('limits')
    export const { ephemeral, durable } = rateLimitTables({ schema: limits, ephemeral: 'quick', durable: 'slow' })`,
}

const CONFIG = `import { defineConfig } from 'drizzle-kit'

  export default defineConfig({
    dialect: 'postgresql',
    schema: './schema.ts',
    schemaFilter: ['public', 'limits'],
    dbCredentials: { url: process.env.DATABASE_URL! },
  })`

/** An application that checks a limit once. */
function application({ module, tables }: Kind, autoMigrate = false): string {
  const load = (names: string, from: string) =>
    module === 'module'
      ? `import { ${names} } from '${from}'`
      : `const { ${names.replaceAll(' as ', ': ')} } = require('${from}')`
  const own = `tables: rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'quick', durable: 'slow' }),`
  return `${load('pgSchema', 'drizzle-orm/pg-core')}
    ${load('drizzle', 'drizzle-orm/node-postgres')}
    ${load('Ratelimit, rateLimitTables', 'drizzle-ratelimit')}
    async function main() {
      const db = drizzle(process.env.DATABASE_URL)
      const limiter = Ratelimit.fixedWindow(5, '1h')
      const api = new Ratelimit({ db, limiter, prefix: 'api', autoMigrate: ${autoMigrate}, ${tables === 'own' ? own : ''} })
      console.log((await api.limit('key')).remaining + ' remaining')
      await db.$client.end()
    }
    main()`
}

const NAMES = { shipped: [], own: ['--schema', 'limits', '--ephemeral', 'quick', '--durable', 'slow'] }

async function emptyUrl(): Promise<string> {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  return database.url
}

async function start(kind: Kind): Promise<Project> {
  const files = {
    'package.json': JSON.stringify({ name: 'app', private: true, type: kind.module }),
    'schema.ts': SCHEMA[kind.tables],
    'drizzle.config.ts': CONFIG,
    'app.js': application(kind),
  }
  return createProject(installed[kind.drizzle], files, await emptyUrl())
}

/** A command that succeeds and prints this among other things. */
const fine = (printed = '') => ({ code: 0, printed: expect.stringContaining(printed) })
const NOTHING = 'No schema changes, nothing to migrate'

test.each(KINDS)('Drizzle $drizzle, package of type $module, $tables tables', async (kind) => {
  const project = await start(kind)
  const names = NAMES[kind.tables]
  expect(await project.run('drizzle-kit', 'generate')).toEqual(fine())
  expect(await project.run('drizzle-ratelimit', 'storage', ...names)).toEqual(fine('Wrote drizzle/'))
  expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
  expect(await project.run('drizzle-ratelimit', 'check', ...names)).toEqual(fine('as the limiter expects'))
  expect(await project.node('app.js')).toEqual(fine('4 remaining'))

  expect(await project.run('drizzle-kit', 'generate')).toEqual(fine(NOTHING))
  expect(await project.run('drizzle-kit', 'push', '--force', '--verbose')).toEqual(
    fine('No changes detected'),
  )
  expect(await project.run('drizzle-ratelimit', 'check', ...names)).toEqual(fine())
  expect(await project.node('app.js')).toEqual(fine('3 remaining'))
  const [tables, storage, ...more] = await project.migrations()
  expect([tables?.[0], storage?.[0], more]).toEqual([
    expect.any(String),
    expect.stringContaining('rate_limit_storage'),
    [],
  ])
})

test.each(KINDS.filter(({ module }) => module === 'module'))(
  'the same in a project that has migrations, Drizzle $drizzle, $tables tables',
  async (kind) => {
    const project = await start(kind)
    const jobs = `import { pgTable, text } from 'drizzle-orm/pg-core'
    export const jobs = pgTable('jobs', { name: text().notNull() })`
    const names = NAMES[kind.tables]
    await project.write('schema.ts', jobs)
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine())
    expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
    expect(await project.run('drizzle-ratelimit', 'storage', ...names)).toEqual({
      code: 2,
      printed: expect.stringContaining('run `npx drizzle-kit generate` first'),
    })
    await project.write('schema.ts', `${SCHEMA[kind.tables]}\n${jobs}`)
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine())
    expect(await project.run('drizzle-ratelimit', 'storage', ...names)).toEqual(fine('Wrote drizzle/'))
    expect(await project.run('drizzle-ratelimit', 'storage', ...names)).toEqual(fine('nothing to do'))
    expect(await project.migrations()).toHaveLength(3)
    expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
    expect(await project.run('drizzle-ratelimit', 'check', ...names)).toEqual(fine('as the limiter expects'))
    // drizzle-kit 0.31 refuses to check a PostgreSQL project.
    if (kind.drizzle === '1.0') expect(await project.run('drizzle-kit', 'check')).toEqual(fine())
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine(NOTHING))
    expect(await project.node('app.js')).toEqual(fine('4 remaining'))
  },
)

test('tables that were dropped and made again get their storage again', async () => {
  const project = await start({ drizzle: '0.45', module: 'module', tables: 'shipped' })
  for (const schema of [SCHEMA.shipped, `import 'drizzle-orm/pg-core'`, SCHEMA.shipped]) {
    await project.write('schema.ts', schema)
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine('Your SQL migration file'))
    if (schema !== SCHEMA.shipped) continue
    expect(await project.run('drizzle-ratelimit', 'storage')).toEqual(fine('Wrote drizzle/'))
  }
  expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
  expect(await project.run('drizzle-ratelimit', 'check')).toEqual(fine('as the limiter expects'))
})

test('an ephemeral table that is logged', async () => {
  const project = await start({ drizzle: '0.45', module: 'commonjs', tables: 'own' })
  const storage = (...more: string[]) => project.run('drizzle-ratelimit', 'storage', ...NAMES.own, ...more)
  const check = (...more: string[]) => project.run('drizzle-ratelimit', 'check', ...NAMES.own, ...more)
  expect(await project.run('drizzle-kit', 'generate')).toEqual(fine())
  expect(await storage('--logged')).toEqual(fine('Wrote drizzle/'))
  expect(await storage('--logged')).toEqual(fine('nothing to do'))
  expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
  expect(await check('--logged')).toEqual(fine('as the limiter expects'))
  expect(await check()).toMatchObject({ code: 1 })
  // The last one counts.
  expect(await storage('--name', 'unlogged')).toEqual(fine('Wrote drizzle/'))
  expect(await storage('--logged', '--name', 'logged')).toEqual(fine('Wrote drizzle/'))
  expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
  expect(await check('--logged')).toEqual(fine('as the limiter expects'))
})

test.each(KINDS.filter(({ tables }) => tables === 'own'))(
  'autoMigrate first, Drizzle $drizzle',
  async (kind) => {
    const project = await start(kind)
    await project.write('first.js', application(kind, true))
    expect(await project.node('first.js')).toEqual(fine('4 remaining'))
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine())
    expect(await project.run('drizzle-ratelimit', 'storage', ...NAMES[kind.tables])).toEqual(fine())
    const { code, printed } = await project.run('drizzle-kit', 'migrate')
    // drizzle-kit 0.31 says it by the exit code alone.
    expect([code, /already exists/.test(printed)]).toEqual([1, kind.drizzle === '1.0'])
    for (const [file, sql] of await project.migrations()) {
      await project.write(file, sql.replaceAll(/CREATE (SCHEMA|TABLE|INDEX) "/g, 'CREATE $1 IF NOT EXISTS "'))
    }
    expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
    expect(await project.run('drizzle-ratelimit', 'check', ...NAMES[kind.tables])).toEqual(fine())
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine(NOTHING))
    expect(await project.node('app.js')).toEqual(fine('3 remaining'))
  },
)

test.each(KINDS.filter(({ tables }) => tables === 'shipped'))(
  'push alone, Drizzle $drizzle',
  async (kind) => {
    const project = await start(kind)
    expect(await project.run('drizzle-kit', 'push', '--force', '--verbose')).toEqual(fine())
    const check = await project.run('drizzle-ratelimit', 'check', ...NAMES[kind.tables])
    expect(check).toEqual({ code: 1, printed: expect.stringContaining('is logged and should be UNLOGGED') })
  },
)

test('check by postgres.js, if pg is not there', async () => {
  const project = await createProject(installed.postgresJs, {}, await emptyUrl())
  const { code, printed } = await project.run('drizzle-ratelimit', 'check')
  expect({ code, printed }).toEqual({ code: 1, printed: expect.stringContaining('2 differences.') })
  expect(printed).toContain('rate_limit_durable is missing')
  const { printed: fix } = await project.run('drizzle-ratelimit', 'check', '--fix')
  expect(fix).toContain('\nCREATE TABLE IF NOT EXISTS "rate_limit_durable" (\n')
})

test('tables in another Postgres schema are pointed out', async () => {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  await database.script('create schema limits; create table limits.rate_limit_ephemeral ()')
  const project = await createProject(installed['0.45'], {}, database.url)
  const { printed } = await project.run('drizzle-ratelimit', 'check')
  expect(printed).toContain('add --schema limits')
  // Names in the project's schema need no options.
  await project.write(
    'schema.ts',
    `import { pgSchema } from 'drizzle-orm/pg-core'
    import { rateLimitTables } from 'drizzle-ratelimit/schema'
    export const schema = pgSchema('own')
    export const { ephemeral, durable } = rateLimitTables({ schema })`,
  )
  await project.write('drizzle.config.ts', CONFIG)
  const declared = await project.run('drizzle-ratelimit', 'check')
  expect(declared).toEqual({ code: 1, printed: expect.stringContaining('own.rate_limit_durable is missing') })
  const { printed: looked } = await project.run('drizzle-ratelimit', 'check', '--schema', 'limits')
  expect(looked).toContain('limits.rate_limit_ephemeral has no column prefix')
  expect(looked).not.toContain('--schema')
})

test('the error names what a project lacks, and no password', async () => {
  const url = new URL(await emptyUrl())
  url.pathname = '/nowhere'
  url.password ||= 'secret'
  const project = await createProject(installed.alone, {}, url.href)
  expect(await project.run('drizzle-ratelimit', 'check')).toEqual({
    code: 2,
    printed: expect.stringContaining('run `npm install pg`'),
  })
  expect(await project.run('drizzle-ratelimit', 'storage')).toEqual({
    code: 2,
    printed: expect.stringContaining('drizzle-kit is not installed'),
  })
  for (const root of [installed['0.45'], installed.postgresJs]) {
    const other = await createProject(root, {}, url.href)
    const { code, printed } = await other.run('drizzle-ratelimit', 'check')
    expect({ code, printed }).toEqual({ code: 2, printed: expect.stringContaining('nowhere') })
    expect(printed).not.toContain(`:${url.password}@`)
  }
})
