import { type ChildProcess, fork, spawn } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Ask, Covered, Message, Told } from './messages.ts'
import { type Mutant, mutated } from './mutants.ts'

const NOT_COPIED = ['node_modules', '.git', 'dist']

/** Only the mutant and what imports it are checked again. */
const CHECKING = [
  '--noEmit',
  '-p',
  'tsconfig.build.json',
  '--incremental',
  '--tsBuildInfoFile',
  'checked.json',
]

const NEVER = new Promise<never>(() => {})

/** How long a test that passes may give no sign of life, on a machine with other work. */
const COVER_STALL_MS = 180_000

/** A copy of the repository, in which tests run on mutants. */
export class Workshop {
  readonly #folder: string
  readonly #env: NodeJS.ProcessEnv
  #host: ChildProcess | undefined
  #isClosed = false
  /** Every test that there is. */
  tests: readonly string[] = []

  private constructor(folder: string, env: NodeJS.ProcessEnv) {
    this.#folder = folder
    this.#env = env
  }

  /** `covers`: its runs also find out what the tests execute. */
  static async open(serverUrl: string, covers = false): Promise<Workshop> {
    const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-mutants-'))
    await cp('.', folder, { recursive: true, filter: (path) => !NOT_COPIED.includes(basename(path)) })
    await symlink(resolve('node_modules'), join(folder, 'node_modules'))
    // The same random calls for every mutant.
    const env = { FC_SEED: '1', DATABASE_URL: serverUrl, ...(covers ? { MUTANTS_COVER: '1' } : {}) }
    const workshop = new Workshop(folder, { ...process.env, ...env })
    await workshop.#start()
    return workshop
  }

  /** Work that is under way has no end then. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#endHost()
    await rm(this.#folder, { recursive: true, force: true })
  }

  /** Runs tests, on a mutant if there is one. */
  run(tests: readonly string[], stallMs: number, mutant?: Mutant): Promise<Told> {
    return this.#with(mutant, () => this.#ask({ changed: mutant ? [mutant.file] : [], tests, stallMs }))
  }

  /** Runs tests once, and hands on what each of them enters. Those that fail or do not end are left out. */
  async cover(tests: readonly string[], hear: (covered: Covered) => void): Promise<void> {
    for (let left = tests; left.length > 0; ) {
      const { failed, ended } = await this.#ask({ changed: [], tests: left, stallMs: COVER_STALL_MS }, hear)
      left = left.filter((test) => test !== failed?.test && !ended.includes(test))
    }
  }

  /** Whether the type checker finds no error. */
  compiles(mutant?: Mutant): Promise<boolean> {
    return this.#with(mutant, async () => {
      const compiler = spawn(process.execPath, [resolve('node_modules/typescript/bin/tsc'), ...CHECKING], {
        cwd: this.#folder,
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      return !/error TS\d/.test(await text(compiler.stdout))
    })
  }

  async #with<T>(mutant: Mutant | undefined, work: () => Promise<T>): Promise<T> {
    if (!mutant) return work()
    const place = join(this.#folder, mutant.file)
    const source = await readFile(place, 'utf8')
    await writeFile(place, mutated(mutant, source))
    const result = await work()
    if (this.#isClosed) return NEVER
    await writeFile(place, source)
    return result
  }

  /** If the process ends before the tests do, the test that was running has failed. */
  async #ask(ask: Ask, hear: (covered: Covered) => void = () => {}): Promise<Told> {
    const host = this.#host ?? (await this.#start())
    const ended: string[] = []
    let test = ask.tests[0] ?? ''
    // If it cannot be sent, the process has ended.
    host.send(ask, () => {})
    const told = await heard(host, ({ started, covered, told }) => {
      if (started !== undefined && started !== test) {
        ended.push(test)
        test = started
      }
      if (covered) hear(covered)
      return told
    })
    if (told) return told
    if (this.#isClosed) return NEVER
    this.#endHost()
    return { failed: { test, name: 'it does not end', isTimeout: true }, ended }
  }

  async #start(): Promise<ChildProcess> {
    const host = fork(join(this.#folder, 'mutants/host.ts'), {
      cwd: this.#folder,
      execArgv: ['--import', 'tsx'],
      env: this.#env,
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      // A group of its own: workers that run in a circle end with it.
      detached: true,
    })
    this.#host = host
    const tests = await heard(host, (message) => message.tests)
    if (!tests) throw new Error('Vitest did not start.')
    this.tests = tests
    return host
  }

  #endHost(): void {
    if (this.#host) endGroup(this.#host)
    this.#host = undefined
  }
}

/** Each workshop takes the next one when it has done with one. */
export async function shareOut<T>(
  workshops: readonly Workshop[],
  all: readonly T[],
  work: (workshop: Workshop, one: T) => Promise<void>,
): Promise<void> {
  const queue = all.values()
  const ended = await Promise.allSettled(
    workshops.map(async (workshop) => {
      for (const one of queue) await work(workshop, one)
    }),
  )
  for (const each of ended) if (each.status === 'rejected') throw each.reason
}

/** The first answer that is found in what the process sends, unless it ends before. */
function heard<T>(host: ChildProcess, find: (message: Message) => T | undefined): Promise<T | undefined> {
  return new Promise((done) => {
    const end = (answer?: T) => {
      host.off('message', onMessage).off('exit', onExit)
      done(answer)
    }
    const onMessage = (message: Message) => {
      const answer = find(message)
      if (answer !== undefined) end(answer)
    }
    const onExit = () => end()
    host.on('message', onMessage).once('exit', onExit)
  })
}

function endGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
