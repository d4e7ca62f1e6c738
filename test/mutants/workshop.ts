import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { FLEETING, startServer } from '../support/server.ts'
import type { Ask, Told } from './host.ts'
import type { Mutant } from './mutants.ts'
import { Stages } from './stages.ts'
import type { Test } from './test.ts'

/** How a mutant ends: by a test, by a test that waits too long, by the type check alone, or not at all. */
export interface Fate {
  readonly kind: 'tests' | 'time' | 'compile' | 'survives'
  /** The test that it failed, if there is one. */
  readonly by: string
}

const COPIED = [
  ...['src', 'schema', 'test', 'drizzle'],
  ...['package.json', 'tsconfig.json', 'tsconfig.build.json', 'vitest.config.ts'],
]

/** For one run of tests: of those that are near, and of others. */
const NEAR_TIMEOUT_MS = 120_000
const RUN_TIMEOUT_MS = 600_000

/** The server that all workshops share. */
export class SharedServer {
  #started: ReturnType<typeof startServer> | undefined

  async url(): Promise<string> {
    this.#started ??= startServer(FLEETING)
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
  readonly #stages = new Stages()
  #host: ChildProcess | undefined

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

  async close(): Promise<void> {
    this.#endHost()
    await rm(this.#folder, { recursive: true, force: true })
  }

  async try(mutant: Mutant): Promise<Fate> {
    return (
      (await this.#failed(mutant, this.#stages.near(mutant), NEAR_TIMEOUT_MS)) ??
      (await this.#failsToCompile(mutant)) ??
      (await this.#failed(mutant, this.#stages.far(mutant), RUN_TIMEOUT_MS)) ??
      (await this.#failed(mutant, this.#stages.pglite(), RUN_TIMEOUT_MS)) ?? { kind: 'survives', by: '' }
    )
  }

  /** The fate of a mutant that fails one of the tests. */
  async #failed(mutant: Mutant, tests: readonly Test[], timeoutMs: number): Promise<Fate | undefined> {
    let left = tests
    while (left.length > 0) {
      const told = await this.#runOn(mutant, left, timeoutMs)
      if (told === 'no end') return { kind: 'time', by: 'a run that did not end' }
      this.#stages.took(told.tookMs)
      const { failed } = told
      if (!failed) return undefined
      if (await this.#isToBlame(mutant, failed.test)) {
        this.#stages.killed(mutant, failed.test)
        const { test, name, isTimeout } = failed
        return { kind: isTimeout ? 'time' : 'tests', by: `${test.path}: ${name}` }
      }
      left = left.slice(left.findIndex(({ path }) => path === failed.test.path) + 1)
    }
    return undefined
  }

  /** Whether a test has failed because of the mutant: neither by chance, nor without the mutant too. */
  async #isToBlame(mutant: Mutant, test: Test): Promise<boolean> {
    if (this.#stages.dependsOnTime(test) && passes(await this.#runOn(mutant, [test], RUN_TIMEOUT_MS))) {
      return false
    }
    if (this.#stages.hasPassed(test)) return true
    if (!passes(await this.#run({ changed: mutant.file, tests: [test] }, RUN_TIMEOUT_MS))) {
      console.error(`${test.path} fails without a mutant. It counts for nothing.`)
      return false
    }
    this.#stages.passed(test)
    return true
  }

  async #runOn({ file, text }: Mutant, tests: readonly Test[], timeoutMs: number): Promise<Told | 'no end'> {
    await writeFile(this.#file(file), text)
    const told = await this.#run({ changed: file, tests }, timeoutMs)
    await this.#restore(file)
    return told
  }

  async #failsToCompile({ file, text }: Mutant): Promise<Fate | undefined> {
    await writeFile(this.#file(file), text)
    const compiler = spawn(
      process.execPath,
      [resolve('node_modules/typescript/bin/tsc'), '--noEmit', '-p', 'tsconfig.build.json'],
      { cwd: this.#folder, stdio: 'ignore' },
    )
    const [code] = await once(compiler, 'exit')
    await this.#restore(file)
    return code === 0 ? undefined : { kind: 'compile', by: 'the types' }
  }

  #file(changed: string): string {
    return join(this.#folder, 'src', changed)
  }

  async #restore(changed: string): Promise<void> {
    await cp(join('src', changed), this.#file(changed))
  }

  /** No end: the time is over, or the process ended before the tests did. */
  async #run(ask: Ask, timeoutMs: number): Promise<Told | 'no end'> {
    const host = await this.#ready()
    host.send(ask)
    const timer = setTimeout(() => endGroup(host), timeoutMs)
    const told = await messageOf<Told>(host)
    clearTimeout(timer)
    if (told) return told
    this.#endHost()
    return 'no end'
  }

  async #ready(): Promise<ChildProcess> {
    if (this.#host) return this.#host
    this.#host = fork(join(this.#folder, 'test/mutants/host.ts'), {
      cwd: this.#folder,
      execArgv: ['--import', 'tsx'],
      // The same random calls for every mutant.
      env: { ...process.env, FC_SEED: '1', DATABASE_URL: await this.#server.url() },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      // A group of its own, so that the workers of a run that does not end can be ended with it.
      detached: true,
    })
    await messageOf(this.#host)
    return this.#host
  }

  #endHost(): void {
    if (this.#host) endGroup(this.#host)
    this.#host = undefined
  }
}

function passes(told: Told | 'no end'): boolean {
  return told !== 'no end' && told.failed === undefined
}

/** The next thing that the process tells, unless it ends. */
function messageOf<T>(child: ChildProcess): Promise<T | undefined> {
  return new Promise((done) => {
    const onEnd = () => done(undefined)
    child.once('exit', onEnd)
    child.once('message', (message) => {
      child.off('exit', onEnd)
      done(message as T)
    })
  })
}

function endGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
