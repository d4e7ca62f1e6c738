import { join } from 'node:path'
import { defineConfig, type TestProjectConfiguration, type ViteUserConfig } from 'vitest/config'
import { ENTRIES } from './support/entries.ts'
import { PATIENTLY } from './support/patience.ts'
import { CONTRACT, distributed, isolated, named, project, without, withoutWings } from './support/projects.ts'
import Retried from './support/retried.ts'
import Summary from './support/summary.ts'

// What takes long, breaks a server of its own, or needs another runtime: `npm run test:drivers` for the
// drivers and versions that `npm test` leaves out, `npm run test:faults`, `npm run test:history`, `npm run
// test:attack`, `npm run test:edge` in workerd, `npm run test:browser` in Chromium, and `npm run test:package`,
// which builds the package, uses it as its users do, runs the examples, draws the pictures, and asks the type
// checker and drizzle-kit about the sources and the documents. `npm run test:long` runs all of it at once: some
// of it waits while the rest works.

const root = new URL('..', import.meta.url).pathname

/** Recipes import the package by its name. */
const SOURCES = [...ENTRIES].map(([entry, file]) => ({
  find: new RegExp(`^${entry}$`),
  replacement: join(root, file),
}))

/** Each version of Drizzle has connections and transactions of its own, which may break in other ways. */
const CONNECTIONS = [
  ...['backends', 'network', 'own-transactions', 'pgbouncer', 'pools', 'postgres-js', 'readme', 'unsent'],
]

/** The folders of the suites. */
const FOLDERS = {
  faults: 'test/faults',
  history: 'test/faults/history',
  attack: 'test/faults/attack',
  edge: 'test/distribution/edge',
  browser: 'test/dashboard/browser',
}

function suite(
  name: keyof typeof FOLDERS,
  drizzle: '0.45' | '1.0' = '0.45',
  files: readonly string[] = ['*'],
): TestProjectConfiguration {
  const alias = { find: /^drizzle-orm(?=\/|$)/, replacement: 'drizzle-orm-v1' }
  return {
    root,
    resolve: { alias: [...SOURCES, ...(drizzle === '1.0' ? [alias] : [])] },
    test: {
      name: drizzle === '1.0' ? `${name} 1.0` : name,
      include: files.map((file) => `${FOLDERS[name]}/${file}.test.ts`),
      provide: { driver: 'node-postgres' },
      env: { DRIZZLE: drizzle },
      globalSetup: ['test/support/global-setup.ts', 'test/support/pglite-setup.ts'],
      setupFiles: [
        'test/support/pglite-data.mjs',
        ...(name === 'faults' || name === 'attack' ? ['test/support/count-checks.ts'] : []),
      ],
      testTimeout: 120_000,
      hookTimeout: 120_000,
      expect: { poll: PATIENTLY },
      // It may depend on the moment of a cut. The end of the gate's output says what was tried again.
      retry: name === 'faults' && process.env['CI'] ? 2 : 0,
    },
  }
}

/** What is decided in memory, or by statements that are the same for distributed tables. */
const BEFORE_STATEMENTS = [
  'behaviour/answers/deny-cache',
  'behaviour/answers/pairs',
  'behaviour/postgres/exact',
  'prefetch/answers/busy-process',
]

/** What the other drivers and versions of Drizzle must do like those of `npm test`. */
const drivers: readonly TestProjectConfiguration[] = [
  project('pglite', '1.0', ...CONTRACT),
  named('pglite 0.45 long', project('pglite', '0.45', 'statements', 'outages', 'tables', 'postgres', 'busy')),
  named('pglite 0.45 waiting', isolated(project('pglite', '0.45', 'waiting'))),
  project('node-postgres', '0.45', ...CONTRACT),
  // Wings send their statements as the kernel does, so its concurrency shows what the driver does to them.
  withoutWings('concurrency', project('postgres-js', '0.45', ...CONTRACT, 'tables', 'concurrency')),
  project('postgres-js', '1.0', ...CONTRACT, 'busy'),
]

/** What `npm test` leaves out on its server. */
const server = named('node-postgres 1.0 long', project('node-postgres', '1.0', 'busy', 'long'))

/** The statements for tables that Citus has distributed, where they are others. */
const statementsOfCitus = distributed(
  without(BEFORE_STATEMENTS, project('pglite', '0.45', ...CONTRACT, 'postgres', 'answers', 'quotas')),
)

/** Without Citus its concurrency is that of the other statements, so it runs on demand. */
const concurrencyOfCitus = process.env['DISTRIBUTED']
  ? [distributed(project('node-postgres', '1.0', ...CONTRACT, 'concurrency'))]
  : []

/** The package as it is published. */
const packed: TestProjectConfiguration = {
  root,
  test: {
    name: 'packed',
    include: ['test/distribution/packed/**/*.test.ts'],
    provide: { driver: 'node-postgres' },
    globalSetup: ['test/distribution/packed/setup.ts', 'test/support/pglite-setup.ts'],
    setupFiles: 'test/support/pglite-data.mjs',
    // They start compilers, servers and browsers, and other files run next to them.
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
}

/** Tables that Citus has distributed, on the cluster that CITUS_URL names. It is not part of the gate. */
const citus: TestProjectConfiguration = {
  root,
  resolve: { alias: SOURCES },
  test: {
    name: 'citus',
    include: ['test/citus/*.test.ts'],
    testTimeout: 300_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
}

/** What the type checker and drizzle-kit say of the sources, and of the examples in the documents. */
const tools: TestProjectConfiguration = {
  root,
  test: {
    name: 'tools',
    include: ['test/distribution/tools/**/*.test.ts'],
    provide: { driver: 'pglite', serverUrl: '' },
    globalSetup: 'test/support/pglite-setup.ts',
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
}

const config: ViteUserConfig = defineConfig({
  root,
  test: {
    // For two cores: some of the tests wait most of the time.
    maxWorkers: 3,
    reporters: ['default', new Retried(), new Summary()],
    projects: [
      suite('faults'),
      suite('faults', '1.0', CONNECTIONS),
      suite('history'),
      suite('history', '1.0'),
      suite('attack'),
      ...drivers,
      server,
      statementsOfCitus,
      ...concurrencyOfCitus,
      packed,
      tools,
      suite('edge'),
      suite('browser'),
      ...(process.env['npm_lifecycle_event'] === 'test:citus' ? [citus] : []),
    ],
  },
})

export default config
