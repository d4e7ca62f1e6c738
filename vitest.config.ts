import {
  defineConfig,
  type TestProjectInlineConfiguration as ProjectConfig,
  type ViteUserConfig,
} from 'vitest/config'
import { ENTRIES } from './test/support/entries.ts'
import { PATIENTLY } from './test/support/patience.ts'

type Driver = 'pglite' | 'node-postgres' | 'postgres-js'
type Drizzle = '0.45' | '1.0'

// Folders of tests: those of `test/`, and those in its folders. A wing has its tests in a folder of its own, as
// in `test/schedule/answers`.

/** Arithmetic and messages, which are the same whatever is between the limiter and Postgres. */
const ARITHMETIC = ['answers', 'quotas']
/** What every driver and each of Drizzle's versions must do alike. */
const CONTRACT = ['drivers', 'transactions', 'statements', 'tables', 'outages']
/** What a busy process gets from each driver, whatever Drizzle's version is. */
const BUSY = ['busy']
/** What errors say, with all that a driver and a server add to them. */
const SECRETS = ['secrets']
/** What several connections do. PGlite has one. For postgres.js there is `npm run test:concurrency`. */
const CONCURRENCY = ['concurrency']
/** Commands that connect to a server. */
const COMMANDS = ['commands']
/** Limited routes of the frameworks. */
const ROUTES = ['routes']
/** What is the same on every database. */
const ONCE = ['unit', 'process', 'documents']
/**
 * What needs a process that no other file has been in. What another file has left there may go on setting a
 * timer each millisecond, and fake timers that advance by themselves would then stop at each.
 */
const ISOLATED = ['isolated', 'waiting']
/** Those of them that need several connections. */
const WAITING = ['waiting']

function project(driver: Driver, drizzle: Drizzle, ...folders: readonly string[][]): ProjectConfig {
  const hasServer = driver !== 'pglite'
  return {
    resolve: { alias: aliases(drizzle) },
    test: {
      name: `${driver} ${drizzle}`,
      include: folders.flat().flatMap((folder) => [`test/${folder}/*.test.ts`, `test/*/${folder}/*.test.ts`]),
      provide: { driver, ...(hasServer ? {} : { serverUrl: '' }) },
      globalSetup: `test/support/${hasServer ? 'global-setup' : 'pglite-setup'}.ts`,
      ...{ testTimeout: 120_000, hookTimeout: 60_000, expect: { poll: PATIENTLY } },
      setupFiles: ['test/support/timers.ts'],
      // Files share the modules of a process: loading them, and starting PGlite, takes longer than most tests.
      isolate: false,
    },
  }
}

function isolated(settings: ProjectConfig): ProjectConfig {
  const { test } = settings
  return { ...settings, test: { ...test, name: `${test?.name} isolated`, isolate: true } }
}

/**
 * The same tests with the statements for tables that Citus has distributed, on a Postgres without Citus. Every
 * limiter has the store `citus()`, and keys count as being on four shards.
 */
function distributed(settings: ProjectConfig): ProjectConfig {
  const { test } = settings
  return {
    ...settings,
    plugins: [asDistributed],
    test: {
      ...test,
      name: `${test?.name} distributed`,
      setupFiles: ['test/support/timers.ts', 'test/support/distributed-setup.ts'],
    },
  }
}

const asDistributed = {
  name: 'distributed',
  enforce: 'pre',
  transform(code: string, file: string) {
    if (file.endsWith('/src/citus/shards.ts')) {
      return code.replace('new Shards(name, [])', 'new Shards(name, [-(2 ** 31), -(2 ** 30), 0, 2 ** 30])')
    }
    if (!file.endsWith('/src/kernel/engine/own-layer.ts')) return undefined
    const given = code.replace('return partsOf(use).table', 'return partsOf(use).table ?? citusTable')
    return `import { citusTable } from '../../citus/citus-table.ts'\n${given}`
  },
} as const

function aliases(drizzle: Drizzle) {
  const sources = [...ENTRIES].map(([entry, file]) => ({
    find: new RegExp(`^${entry}$`),
    replacement: new URL(file, import.meta.url).pathname,
  }))
  const versioned = { find: /^drizzle-orm(?=\/|$)/, replacement: 'drizzle-orm-v1' }
  return drizzle === '1.0' ? [...sources, versioned] : sources
}

const config: ViteUserConfig = defineConfig({
  test: {
    // For two cores: tests wait for Postgres about half as long as they work.
    maxWorkers: 3,
    projects: [
      project('pglite', '0.45', CONTRACT, BUSY, ARITHMETIC, ROUTES, ONCE),
      isolated(project('pglite', '0.45', ISOLATED)),
      isolated(project('node-postgres', '1.0', WAITING)),
      project('pglite', '1.0', CONTRACT),
      project('node-postgres', '0.45', CONTRACT),
      project('node-postgres', '1.0', CONTRACT, BUSY, ARITHMETIC, SECRETS, CONCURRENCY, ROUTES, COMMANDS),
      distributed(project('pglite', '0.45', CONTRACT, ARITHMETIC)),
      // Without Citus its concurrency is that of the other statements, so it runs on demand.
      ...(process.env['DISTRIBUTED']
        ? [distributed(project('node-postgres', '1.0', CONTRACT, CONCURRENCY))]
        : []),
      project('postgres-js', '0.45', CONTRACT),
      project('postgres-js', '1.0', CONTRACT, BUSY),
    ],
  },
})

export default config
