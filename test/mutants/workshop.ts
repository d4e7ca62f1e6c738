import { type ChildProcess, spawn } from 'node:child_process'
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { startServer } from '../support/server.ts'
import { AREAS, SLOW } from './areas.ts'
import type { Mutant } from './mutants.ts'

/** How a mutant ends: by a test, by a run that does not end, by the type check alone, or not at all. */
export type Fate = 'tests' | 'time' | 'compile' | 'survives'

const COPIED = ['src', 'schema', 'test', 'drizzle', 'package.json', 'tsconfig.json', 'vitest.config.ts']

/** Most tests take milliseconds. A mutant that makes one wait must not hold up the others. */
const TEST_TIMEOUT_MS = 30_000

/** For one run of tests: of those that are near, and of all. */
const NEAR_TIMEOUT_MS = 120_000
const RUN_TIMEOUT_MS = 600_000

const ON_SERVER = ['--project', 'once', '--project', 'node-postgres 1.0']
const FOLDERS = ['alone', 'answers', 'concurrency', 'drivers', 'outages', 'quotas', 'statements', 'tables']

/**
 * What a mutant must get past: first the tests that are near and quick, then all. A server is several times
 * as fast as PGlite, which has a code path of its own and so comes last.
 *
 * Snapshots of statements are left out: they show a change, and not whether it matters.
 */
const STAGES: readonly ((area: string) => readonly string[])[] = [
  (area) => [
    ...ON_SERVER,
    ...(AREAS.find(({ name }) => name === area)?.near ?? []).map((test) => `test/${test}.test.ts`),
  ],
  (area) => [
    ...ON_SERVER,
    ...[...FOLDERS, 'transactions'].map((folder) => `test/${folder}/`),
    ...Object.entries(SLOW).flatMap(([test, areas]) =>
      areas.includes(area) ? [] : ['--exclude', `test/${test}.test.ts`],
    ),
  ],
  () => ['--project', 'pglite 0.45', 'test/drivers/', 'test/tables/', 'test/transactions/'],
]

/** The server that all workshops share. */
export class SharedServer {
  #started: ReturnType<typeof startServer> | undefined

  async url(): Promise<string> {
    // As in test/support/global-setup.ts.
    this.#started ??= startServer([
      ...['fsync=off', 'full_page_writes=off', 'autovacuum=off', 'deadlock_timeout=100ms'],
    ])
    return (await this.#started).url
  }

  async stop(): Promise<void> {
    await (await this.#started)?.stop()
  }
}

/** A copy of the repository, in which one mutant at a time is tried. */
export class Workshop {
  readonly #folder: string
  readonly #server: SharedServer

  private constructor(folder: string, server: SharedServer) {
    this.#folder = folder
    this.#server = server
  }

  static async open(server: SharedServer): Promise<Workshop> {
    const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-mutants-'))
    for (const each of COPIED) await cp(each, join(folder, each), { recursive: true })
    await symlink(resolve('node_modules'), join(folder, 'node_modules'))
    return new Workshop(folder, server)
  }

  close(): Promise<void> {
    return rm(this.#folder, { recursive: true, force: true })
  }

  /** Whether the source itself passes the tests of an area: what fails there would kill every mutant. */
  async passes(area: string): Promise<boolean> {
    return (await this.#test(0, area)) === 'passed'
  }

  async try(mutant: Mutant): Promise<Fate> {
    const file = join(this.#folder, 'src', mutant.file)
    await writeFile(file, mutant.text)
    try {
      for (const stage of STAGES.keys()) {
        const ended = await this.#test(stage, mutant.area)
        if (ended !== 'passed') return ended === 'failed' ? 'tests' : 'time'
      }
      const compiled = await this.#run('typescript/bin/tsc', ['--noEmit'])
      return compiled === 'failed' ? 'compile' : 'survives'
    } finally {
      await cp(join('src', mutant.file), file)
    }
  }

  async #test(stage: number, area: string): Promise<Ended> {
    return this.#run(
      'vitest/vitest.mjs',
      [
        ...['run', '--bail', '1', '--maxWorkers', '1', '--reporter', 'dot'],
        ...['--testTimeout', String(TEST_TIMEOUT_MS), ...(STAGES[stage]?.(area) ?? [])],
      ],
      { DATABASE_URL: await this.#server.url() },
      stage === 0 ? NEAR_TIMEOUT_MS : RUN_TIMEOUT_MS,
    )
  }

  #run(
    script: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    timeoutMs: number = RUN_TIMEOUT_MS,
  ): Promise<Ended> {
    return new Promise((done, fail) => {
      const child = spawn(process.execPath, [resolve('node_modules', script), ...args], {
        cwd: this.#folder,
        // The same random calls for every mutant.
        env: { ...process.env, FC_SEED: '1', ...env },
        stdio: 'ignore',
        // A group of its own, so that the workers of a run that does not end can be ended with it.
        detached: true,
      })
      const timer = setTimeout(() => {
        endGroup(child)
        done('timed out')
      }, timeoutMs)
      child.once('error', fail)
      child.once('exit', (code) => {
        clearTimeout(timer)
        done(code === 0 ? 'passed' : 'failed')
      })
    })
  }
}

type Ended = 'passed' | 'failed' | 'timed out'

function endGroup({ pid }: ChildProcess): void {
  if (pid !== undefined) process.kill(-pid, 'SIGKILL')
}
