import { existsSync } from 'node:fs'
import type { TestProjectInlineConfiguration as ProjectConfig } from 'vitest/config'
import { ENTRIES } from './entries.ts'
import { PATIENTLY } from './patience.ts'

// A project is a driver and a version of Drizzle, with folders of tests: those of `test/`, and those in its
// folders. A wing has its tests in a folder of its own, as in `test/schedule/answers`.

type Driver = 'pglite' | 'node-postgres' | 'postgres-js'
type Drizzle = '0.45' | '1.0'

type Folder =
  /** What every driver and each of Drizzle's versions must do alike. */
  | 'drivers'
  | 'transactions'
  | 'statements'
  | 'outages'
  /** What Postgres says of tables, as each driver and each version of Drizzle reads it. */
  | 'tables'
  /** Arithmetic and messages, which are the same whatever is between the limiter and Postgres. */
  | 'answers'
  /** The same of quotas, whose calls are several statements in transactions. */
  | 'quotas'
  /** What may depend on how Postgres was built and where it runs: numbers, time zones, settings, its clock. */
  | 'postgres'
  /** What several connections do. PGlite has one. */
  | 'concurrency'
  /** Plans of statements, and random calls in many rounds. They take long, and no driver changes them. */
  | 'long'
  /** What a busy process gets from each driver, whatever Drizzle's version is. */
  | 'busy'
  /** What errors say, with all that a driver and a server add to them. */
  | 'secrets'
  /** Commands that connect to a server. */
  | 'commands'
  /** Limited routes of the frameworks. */
  | 'routes'
  /** Modules, one process, and what documents say. */
  | 'unit'
  | 'process'
  | 'documents'
  /**
   * What needs a process that no other file has been in. What another file has left there may go on setting a
   * timer each millisecond, and fake timers that advance by themselves would then stop at each.
   */
  | 'isolated'
  /** Those of them that wait, on several connections too. */
  | 'waiting'

/** The folders of the contract that every driver keeps, with each version of Drizzle. */
export const CONTRACT: readonly Folder[] = ['drivers', 'transactions', 'statements', 'outages']

/** What shows that a database works: the vectors and everyday calls, alone and in transactions. */
export const SMOKE: readonly Folder[] = ['drivers', 'transactions']

/** What is the same on every database, and asks one. */
export const SAME: readonly Folder[] = ['answers', 'quotas', 'routes']

/** What is the same on every database, most of it without one. */
export const ONCE: readonly Folder[] = ['unit', 'process', 'documents']

/** What needs several connections, or says what they see. */
export const OF_SERVERS: readonly Folder[] = ['concurrency', 'secrets', 'commands']

const SETUP_FILES = ['test/support/pglite-data.mjs']

const root: string = new URL('../..', import.meta.url).pathname

/** Nobody would drop those that are left on a server that was there before. */
const sharesDatabases = !process.env['DATABASE_URL']

export function project(driver: Driver, drizzle: Drizzle, ...folders: readonly Folder[]): ProjectConfig {
  const hasServer = driver !== 'pglite'
  return {
    root,
    resolve: { alias: aliases(drizzle) },
    test: {
      name: `${driver} ${drizzle}`,
      include: folders.flatMap((folder) => [`test/${folder}/*.test.ts`, `test/*/${folder}/*.test.ts`]),
      provide: { driver, ...(hasServer ? { sharesDatabases } : { serverUrl: '' }) },
      globalSetup: [...(hasServer ? ['test/support/global-setup.ts'] : []), 'test/support/pglite-setup.ts'],
      ...{ testTimeout: 120_000, hookTimeout: 60_000, expect: { poll: PATIENTLY } },
      setupFiles: SETUP_FILES,
      // Files share the modules of a process: loading them, and starting PGlite, takes longer than most tests.
      isolate: false,
    },
  }
}

export function named(name: string, settings: ProjectConfig): ProjectConfig {
  return { ...settings, test: { ...settings.test, name } }
}

/** Leaves out files of `test/`, named without their endings. */
export function without(files: readonly string[], settings: ProjectConfig): ProjectConfig {
  const exclude = files.map((file) => `test/${file}.test.ts`)
  for (const file of exclude) if (!existsSync(`${root}${file}`)) throw new Error(`There is no ${file}.`)
  return { ...settings, test: { ...settings.test, exclude } }
}

/** Leaves out a folder's tests of wings. */
export function withoutWings(folder: Folder, settings: ProjectConfig): ProjectConfig {
  return { ...settings, test: { ...settings.test, exclude: [`test/*/${folder}/*.test.ts`] } }
}

export function isolated(settings: ProjectConfig): ProjectConfig {
  const { test } = named(`${settings.test?.name} isolated`, settings)
  return {
    ...settings,
    test: { ...test, isolate: true, provide: { ...test?.provide, sharesDatabases: false } },
  }
}

/**
 * The same tests with the statements for tables that Citus has distributed, on a Postgres without Citus. Every
 * limiter has the store `citus()`, and keys count as being on four shards.
 */
export function distributed(settings: ProjectConfig): ProjectConfig {
  const { test } = settings
  return {
    ...settings,
    plugins: [asDistributed],
    test: {
      ...test,
      name: `${test?.name} distributed`,
      setupFiles: [...SETUP_FILES, 'test/support/distributed-setup.ts'],
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
    const given = code.replace('return givenBy(use).table', 'return givenBy(use).table ?? citusTable')
    return `import { citusTable } from '../../citus/citus-table.ts'\n${given}`
  },
} as const

function aliases(drizzle: Drizzle) {
  const sources = [...ENTRIES].map(([entry, file]) => ({
    find: new RegExp(`^${entry}$`),
    replacement: `${root}${file}`,
  }))
  const versioned = { find: /^drizzle-orm(?=\/|$)/, replacement: 'drizzle-orm-v1' }
  return drizzle === '1.0' ? [...sources, versioned] : sources
}
