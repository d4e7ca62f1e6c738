import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Executed, executes } from './executed.ts'
import type { Mutant } from './mutants.ts'
import { shareOut, type Workshop } from './workshop.ts'

interface Measured extends Executed {
  readonly ms: number
  /** A hash of the sources that it was measured on. */
  readonly on: string
}

const FILE = 'node_modules/.cache/mutants.json'

/** What each test executes: it cannot kill a mutant that it does not execute. A file keeps it between runs. */
export class Coverage {
  readonly #measured: Record<string, Measured>
  /** By test and file. */
  readonly #kills = new Map<string, number>()
  readonly #shared: string

  constructor() {
    this.#measured = existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : {}
    const files = ['src', 'schema', 'test'].flatMap(filesIn)
    this.#shared = hashOf(files.filter((file) => !file.endsWith('.test.ts')))
  }

  /** Runs tests whose sources have changed, each by itself, in workshops that find out what they execute. */
  async measure(tests: readonly string[], open: () => Promise<readonly Workshop[]>): Promise<void> {
    const on = (test: string) => this.#shared + hashOf([fileOf(test)])
    const changed = tests.filter((test) => this.#measured[test]?.on !== on(test))
    for (const test of Object.keys(this.#measured)) {
      if (!tests.includes(test) || changed.includes(test)) delete this.#measured[test]
    }
    if (changed.length === 0) return
    console.log(`${changed.length} tests run once, to see what they execute`)
    mkdirSync(dirname(FILE), { recursive: true })
    await shareOut(await open(), changed, async (workshop, test) => {
      const { executed, failed, ms } = await workshop.run([test])
      if (!executed || failed) {
        return console.error(`${test} fails without a mutant, and counts for nothing: ${failed?.name}`)
      }
      this.#measured[test] = { ...executed, ms, on: on(test) }
      writeFileSync(FILE, JSON.stringify(this.#measured))
    })
  }

  /**
   * The tests that execute a mutant. First come those that have killed others of the file, that execute most of
   * it and little else, and that are quick. The last ones are left out if all would take longer than `maxMs`.
   */
  testsOf(mutant: Mutant, maxMs: number): readonly string[] {
    let sumMs = 0
    const worth = (test: string, { statements, missed, ms }: Measured) => {
      const kills = this.#kills.get(`${test} ${mutant.file}`) ?? 0
      const missing = missed[mutant.file]?.length ?? 0
      return (1 + kills) / (1 + missing) / Math.sqrt(statements * ms)
    }
    return Object.entries(this.#measured)
      .filter(([, each]) => executes(each, mutant))
      .toSorted((one, other) => worth(...other) - worth(...one))
      .filter(([, { ms }], i) => {
        sumMs += ms
        return sumMs <= maxMs || i === 0
      })
      .map(([test]) => test)
  }

  /** Notes that a test has killed a mutant. */
  learn(test: string, { file }: Mutant): void {
    const key = `${test} ${file}`
    this.#kills.set(key, (this.#kills.get(key) ?? 0) + 1)
  }
}

function fileOf(test: string): string {
  return test.slice(test.indexOf(': ') + 2)
}

function hashOf(files: readonly string[]): string {
  const hash = createHash('sha256')
  for (const file of files) hash.update(`${file} `).update(readFileSync(file))
  return hash.digest('hex')
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((file) => `${folder}/${file}`)
    .filter((file) => statSync(file).isFile())
    .toSorted()
}
