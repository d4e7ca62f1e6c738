import { defineConfig, type TestProjectConfiguration, type ViteUserConfig } from 'vitest/config'
import { ENTRIES } from './test/support/entries.ts'

type Driver = 'pglite' | 'node-postgres' | 'postgres-js'
type Drizzle = '0.45' | '1.0'

/** Arithmetic and messages, which are the same whatever is between the limiter and Postgres. */
const ARITHMETIC = ['answers', 'quotas']
/** What every driver and each of Drizzle's versions must do alike. */
const CONTRACT = ['drivers', 'transactions', 'statements', 'tables', 'outages']
/** What errors say, with all that a driver and a server add to them. */
const SECRETS = ['secrets']
/** What several connections do. PGlite has one: it proves SQL only. */
const CONCURRENCY = ['concurrency']
/** Limited routes of the frameworks. */
const ROUTES = ['http']
/** What needs no database of a driver: single modules, and what is shipped and written. */
const ONCE = ['alone', 'package']

/** The folders that are run on a database. */
function database(
  driver: Driver,
  drizzle: Drizzle,
  ...folders: readonly string[][]
): TestProjectConfiguration {
  const hasServer = driver !== 'pglite'
  return {
    ...resolved(drizzle),
    test: {
      ...common(`${driver} ${drizzle}`, folders.flat()),
      provide: { driver, ...(hasServer ? {} : { serverUrl: '' }) },
      ...(hasServer ? { globalSetup: 'test/support/global-setup.ts' } : {}),
    },
  }
}

function once(): TestProjectConfiguration {
  return {
    ...resolved('0.45'),
    test: { ...common('once', ONCE), provide: { driver: 'pglite', serverUrl: '' } },
  }
}

function common(name: string, folders: readonly string[]) {
  const include = folders.map((folder) => `test/${folder}/**/*.test.ts`)
  // Files share the modules of a process: loading them, and starting PGlite, takes longer than most tests.
  return { name, include, testTimeout: 120_000, hookTimeout: 60_000, isolate: false }
}

function resolved(drizzle: Drizzle) {
  const sources = [...ENTRIES].map(([entry, file]) => ({
    find: new RegExp(`^${entry}$`),
    replacement: new URL(file, import.meta.url).pathname,
  }))
  const alias = [
    ...sources,
    ...(drizzle === '1.0' ? [{ find: /^drizzle-orm(?=\/|$)/, replacement: 'drizzle-orm-v1' }] : []),
  ]
  return { resolve: { alias } }
}

const config: ViteUserConfig = defineConfig({
  test: {
    // For two cores: tests wait for Postgres about half as long as they work.
    maxWorkers: 3,
    projects: [
      once(),
      database('pglite', '0.45', CONTRACT, ARITHMETIC, ROUTES),
      database('pglite', '1.0', CONTRACT),
      database('node-postgres', '0.45', CONTRACT),
      database('node-postgres', '1.0', CONTRACT, ARITHMETIC, SECRETS, CONCURRENCY, ROUTES),
      database('postgres-js', '0.45', CONTRACT, CONCURRENCY),
      database('postgres-js', '1.0', CONTRACT),
    ],
  },
})

export default config
