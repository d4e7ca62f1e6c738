import { expect, inject, onTestFinished, test } from 'vitest'
import { RECOMMENDED_DB } from '../../../src/cli/recommended-db.ts'
import { emptyDatabase } from '../../support/databases.ts'
import { createProject, type Project } from './project.ts'

// Slow: someone's project installs the tarball and runs `drizzle-ratelimit init`, which runs drizzle-kit.

type Drizzle = '0.45' | '1.0'
const DRIZZLES: readonly Drizzle[] = ['0.45', '1.0']

const JOBS = `import { pgTable, text } from 'drizzle-orm/pg-core'
export const jobs = pgTable('jobs', { name: text().notNull() })
`

const CONFIG = `export default { dialect: 'postgresql', schema: './schema.ts', dbCredentials: { url: process.env.DATABASE_URL! } }`

/** A configuration with these settings. */
const configOf = (settings: object) =>
  `export default ${JSON.stringify({ dialect: 'postgresql', ...settings })}`

async function start(drizzle: Drizzle, files: Readonly<Record<string, string>>): Promise<Project> {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  const hasConfig = Object.keys(files).some((name) => name.startsWith('drizzle.config'))
  const config = hasConfig ? {} : { 'drizzle.config.ts': CONFIG }
  const all = { 'package.json': '{ "type": "module" }', ...config, ...files }
  return createProject(inject('installed')[drizzle], all, database.url)
}

const fine = (printed = '') => ({ code: 0, printed: expect.stringContaining(printed) })

// readme.test.ts has the other two pairs.
test.each([
  ['0.45', 'a new project'],
  ['1.0', 'one with migrations'],
] as const)('Drizzle %s, %s: the tables are right after migrate', async (drizzle, kind) => {
  const project = await start(drizzle, { 'schema.ts': JOBS })
  if (kind === 'one with migrations') {
    expect(await project.run('drizzle-kit', 'generate')).toEqual(fine())
    expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
  }
  const before = await project.texts()
  const dry = await project.run('drizzle-ratelimit', 'init', '--dry-run')
  expect(dry).toEqual(fine(`export * from 'drizzle-ratelimit/schema'`))
  expect(await project.texts()).toEqual(before)

  const { code, printed } = await project.run('drizzle-ratelimit', 'init')
  expect({ code, printed }).toEqual(fine('Now run `npx drizzle-kit migrate`.'))
  const did = ['Wrote to the end of schema.ts', 'Ran `npx drizzle-kit generate`, which', 'Wrote drizzle/']
  for (const said of [...did, ...RECOMMENDED_DB.trim().split('\n')]) expect(printed).toContain(said)
  const after = await project.texts()
  expect(after['schema.ts']).toBe(`${JOBS}\nexport * from 'drizzle-ratelimit/schema'\n`)
  const { 'schema.ts': _, ...others } = before
  expect(after).toMatchObject(drizzle === '0.45' ? { 'drizzle.config.ts': CONFIG } : others)
  expect(await project.run('drizzle-kit', 'migrate')).toEqual(fine())
  expect(await project.run('drizzle-ratelimit', 'check')).toEqual(fine('as the limiter expects'))
  expect(await project.run('drizzle-kit', 'generate')).toEqual(fine('nothing to migrate'))

  for (const command of [['init'], ['init', '--dry-run'], ['storage']]) {
    expect(await project.run('drizzle-ratelimit', ...command)).toEqual(fine('nothing to do'))
  }
  expect(await project.texts()).toEqual(after)
})

test('a project with postgres.js is shown a db.ts for it, which ends a wait for a row', async () => {
  const project = await start('0.45', {
    'package.json': '{ "type": "module", "dependencies": { "postgres": "^3.4.9" } }',
    'schema.ts': JOBS,
    'ask.ts': `import { sql } from 'drizzle-orm'
      import { db } from './db.ts'
      console.log(await db.execute(sql\`show lock_timeout\`))
      await db.$client.end()`,
  })
  const { printed } = await project.run('drizzle-ratelimit', 'init')
  expect(printed).toContain("from 'drizzle-orm/postgres-js'")
  await project.write('db.ts', printed.slice(printed.indexOf('    import ')))
  expect(await project.node('ask.ts')).toEqual(fine("lock_timeout: '3s'"))
})

interface Layout {
  /** For files of which drizzle-kit of both versions is told in the same way. */
  readonly drizzle?: Drizzle
  readonly files: Readonly<Record<string, string>>
  readonly args?: readonly string[]
  /** The file that gets the tables, and what its text then has. */
  readonly changed: readonly [file: string, text: string]
  readonly made?: readonly [ephemeral: string, durable: string]
  readonly says?: string
}

const EXPORT = `export * from 'drizzle-ratelimit/schema'`
const IN_LIMITS = `export const app = pgSchema('app')
  export const jobs = app.table('jobs', { name: text().notNull() })`

/** A file as Git makes it on Windows. */
const WINDOWS = JOBS.replaceAll('\n', '\r\n')

const LAYOUTS: Readonly<Record<string, Layout>> = {
  'a file with the line ends of Windows': {
    drizzle: '0.45',
    files: { 'schema.ts': WINDOWS },
    changed: ['schema.ts', `${WINDOWS}\r\n${EXPORT}\r\n`],
  },
  'a folder of files with the line ends of Windows': {
    drizzle: '1.0',
    files: { 'drizzle.config.ts': configOf({ schema: './src/schema' }), 'src/schema/jobs.ts': WINDOWS },
    changed: ['src/schema/rate-limit.ts', `${EXPORT}\r\n`],
  },
  'a pattern': {
    drizzle: '0.45',
    files: {
      'drizzle.config.ts': configOf({ schema: 'src/**/*.table.{ts,js}' }),
      'src/a/jobs.table.ts': JOBS,
    },
    changed: ['src/rate-limit.table.ts', `${EXPORT}\n`],
  },
  'a list': {
    drizzle: '1.0',
    files: { 'drizzle.config.ts': configOf({ schema: ['./src/*/schema.ts'] }), 'src/jobs/schema.ts': JOBS },
    changed: ['src/rate-limit/schema.ts', EXPORT],
  },
  CommonJS: {
    drizzle: '1.0',
    files: {
      'package.json': '{ "type": "commonjs" }',
      'drizzle.config.js': `module.exports = { dialect: 'postgresql', schema: './schema.js' }`,
      'schema.js': `const { pgTable, text } = require('drizzle-orm/pg-core')
        module.exports = { jobs: pgTable('jobs', { name: text('name') }) }`,
    },
    changed: ['schema.js', `require('drizzle-ratelimit/schema')`],
  },
  'a configuration that drizzle-kit does not find': {
    drizzle: '0.45',
    files: { 'drizzle.config.mjs': configOf({ schema: './schema.ts' }), 'schema.ts': JOBS },
    changed: ['schema.ts', EXPORT],
  },
  schemaFilter: {
    files: {
      'drizzle.config.ts': configOf({ schema: './schema.ts', schemaFilter: ['app'] }),
      'schema.ts': `import { pgSchema, text } from 'drizzle-orm/pg-core'\n${IN_LIMITS}`,
    },
    changed: ['schema.ts', 'export const rateLimits'],
    made: ['"app"."rate_limit_ephemeral"', '"app"."rate_limit_durable"'],
  },
  'names of their own': {
    drizzle: '1.0',
    files: { 'schema.ts': JOBS },
    args: ['--schema', 'limits', '--ephemeral', 'quick', '--durable', 'slow'],
    changed: ['schema.ts', `export const rateLimitSchema = pgSchema('limits')`],
    made: ['"limits"."quick"', '"limits"."slow"'],
    says: 'Give the limiters your tables: `tables: rateLimits`',
  },
  'one that has tables of its own': {
    drizzle: '0.45',
    files: {
      'schema.ts': `import { rateLimitTables } from 'drizzle-ratelimit/schema'
        export const mine = rateLimitTables({ ephemeral: 'quick', durable: 'slow' })
        export const { ephemeral: quick, durable: slow } = mine`,
    },
    args: ['--ephemeral', 'quick', '--durable', 'slow'],
    changed: ['schema.ts', 'export const mine'],
    made: ['"quick"', '"slow"'],
    says: 'Give the limiters your tables: `tables: { ephemeral, durable }`',
  },
}

test.each(
  Object.entries(LAYOUTS).flatMap(([name, layout]) =>
    DRIZZLES.filter((each) => (layout.drizzle ?? each) === each).map(
      (drizzle) => [drizzle, name, layout] as const,
    ),
  ),
)('Drizzle %s, the schema is %s', async (drizzle, _, layout) => {
  const { files, args = [], changed, made = USUAL, says = 'Now run `npx drizzle-kit migrate' } = layout
  const project = await start(drizzle, files)
  expect(await project.run('drizzle-ratelimit', 'init', ...args)).toEqual(fine(says))
  const [file, text] = changed
  expect((await project.texts())[file]).toContain(text)
  const sql = (await project.migrations()).map(([, each]) => each).join('\n')
  const [ephemeral, durable] = made
  expect(sql).toContain(`CREATE TABLE ${ephemeral} (`)
  expect(sql).toContain(`CREATE TABLE ${durable} (`)
  expect(sql).toContain(`ALTER TABLE ${ephemeral} SET UNLOGGED`)
  expect(sql.match(/CREATE SCHEMA/g)?.length ?? 0).toBe(ephemeral.includes('.') ? 1 : 0)
})

const USUAL = ['"rate_limit_ephemeral"', '"rate_limit_durable"'] as const

test.each(DRIZZLES)(
  'Drizzle %s, tablesFilter: push makes the tables, and then has nothing to do',
  async (drizzle) => {
    const config = CONFIG.replace('{', "{ tablesFilter: ['app_*'],")
    const jobs = JOBS.replace("'jobs'", "'app_jobs'")
    const project = await start(drizzle, { 'drizzle.config.ts': config, 'schema.ts': jobs })
    expect(await project.run('drizzle-ratelimit', 'init')).toEqual(fine())
    expect((await project.texts())['schema.ts']).toContain('export const rateLimits')
    const push = () => project.run('drizzle-kit', 'push', '--force')
    expect(await push()).toEqual(fine('Changes applied'))
    expect(await push()).toEqual(fine('No changes detected'))
    // A push sets no storage.
    const names = ['--ephemeral', 'app_rate_limit_ephemeral', '--durable', 'app_rate_limit_durable']
    const { printed } = await project.run('drizzle-ratelimit', 'check', ...names)
    expect(printed).toContain('is logged and should be UNLOGGED')
    expect(printed).not.toContain('missing')
  },
)

test.each<[string, Readonly<Record<string, string>>, string]>([
  [
    'a name that the file has already',
    {
      'drizzle.config.ts': configOf({ schema: './schema.ts', tablesFilter: 'app_*' }),
      'schema.ts': `${JOBS}export const rateLimits = 1`,
    },
    'Add them yourself',
  ],
  [
    'tables under names that were not given',
    {
      'schema.ts': `import { rateLimitTables } from 'drizzle-ratelimit/schema'
        export const { ephemeral, durable } = rateLimitTables({ ephemeral: 'quick', durable: 'slow' })`,
    },
    'public.quick, public.slow',
  ],
  [
    'a filter that init does not understand',
    {
      'drizzle.config.ts': configOf({ schema: './schema.ts', tablesFilter: '+(app|web)_x' }),
      'schema.ts': JOBS,
    },
    'add --ephemeral',
  ],
  [
    'another dialect',
    { 'drizzle.config.ts': `export default { dialect: 'sqlite', schema: './schema.ts' }` },
    'sqlite',
  ],
  ['a schema with an error', { 'schema.ts': 'export const = 1' }, 'drizzle-kit failed'],
])('what init refuses leaves all files as they are: %s', async (_, files, said) => {
  const project = await start('0.45', files)
  const before = await project.texts()
  expect(await project.run('drizzle-ratelimit', 'init')).toEqual({
    code: 2,
    printed: expect.stringContaining(said),
  })
  expect(await project.texts()).toEqual(before)
})
