import { type ChildProcess, fork, spawn } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { FLEETING, startServer } from '../support/server.ts'
import type { Ask, Told } from './host.ts'
import type { Mutant } from './mutants.ts'
import type { Test } from './test.ts'

const COPIED = [
  ...['src', 'schema', 'test', 'drizzle'],
  ...['package.json', 'tsconfig.json', 'tsconfig.build.json', 'vitest.config.ts'],
]

/** For one run of tests. */
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

/** A copy of the repository, in which tests are run on mistakes. */
export class Workshop {
  readonly #folder: string
  readonly #server: SharedServer
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

  /** Runs tests on the source with these mistakes in it. */
  run(mutants: readonly Mutant[], tests: readonly Test[]): Promise<Told | 'no end'> {
    return this.#with(mutants, () => this.#ask({ changed: mutants.map(({ file }) => file), tests }))
  }

  /** Whether the type checker has nothing to say. */
  compiles(mutants: readonly Mutant[]): Promise<boolean> {
    return this.#with(mutants, async () => {
      const compiler = spawn(
        process.execPath,
        [resolve('node_modules/typescript/bin/tsc'), '--noEmit', '-p', 'tsconfig.build.json'],
        { cwd: this.#folder, stdio: ['ignore', 'pipe', 'inherit'] },
      )
      // What ends it from outside is no error of the types.
      const said = await text(compiler.stdout)
      return !/error TS\d/.test(said)
    })
  }

  async #with<T>(mutants: readonly Mutant[], work: () => Promise<T>): Promise<T> {
    const places = mutants.map(({ file }) => join(this.#folder, 'src', file))
    const texts = await Promise.all(places.map((place) => readFile(place, 'utf8')))
    for (const [i, mutant] of mutants.entries()) await writeFile(places[i] as string, mutant.text)
    try {
      return await work()
    } finally {
      for (const [i, before] of texts.entries()) await writeFile(places[i] as string, before)
    }
  }

  /** No end: the time is over, or the process ended before the tests did. */
  async #ask(ask: Ask): Promise<Told | 'no end'> {
    this.#host ??= await this.#start()
    const host = this.#host
    // If it cannot be sent, the process has ended, which is seen below.
    host.send(ask, () => {})
    const timer = setTimeout(() => endGroup(host), RUN_TIMEOUT_MS)
    const told = await messageOf<Told>(host)
    clearTimeout(timer)
    if (told) return told
    this.#endHost()
    return 'no end'
  }

  async #start(): Promise<ChildProcess> {
    const host = fork(join(this.#folder, 'test/mutants/host.ts'), {
      cwd: this.#folder,
      execArgv: ['--import', 'tsx'],
      // The same random calls for every mutant.
      env: { ...process.env, FC_SEED: '1', DATABASE_URL: await this.#server.url() },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      // A group of its own, so that the workers of a run that does not end can be ended with it.
      detached: true,
    })
    host.once('exit', () => {
      if (this.#host === host) this.#endHost()
    })
    if (!(await messageOf(host))) throw new Error('Vitest did not start.')
    return host
  }

  #endHost(): void {
    if (this.#host) endGroup(this.#host)
    this.#host = undefined
  }
}

/** The next thing that the process tells, unless it ends. */
function messageOf<T>(child: ChildProcess): Promise<T | undefined> {
  return new Promise((done) => {
    const end = (message?: unknown) => {
      child.off('exit', onEnd).off('error', onEnd).off('message', end)
      done(message as T | undefined)
    }
    const onEnd = () => end()
    child.once('exit', onEnd).once('error', onEnd).once('message', end)
  })
}

function endGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
