import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { type Entered, fileOf, functionsIn } from './entered.ts'
import { Kept } from './kept.ts'
import type { Covered } from './messages.ts'
import type { Mutant } from './mutants.ts'
import { placesIn } from './walk.ts'
import { shareOut, type Workshop } from './workshop.ts'

interface Measured extends Covered {
  /** A hash of the test, and of the names of the functions in the files that it enters. */
  readonly on: string
}

/** So many tests are run by one process before another may take the next ones. */
const AT_ONCE = 12

/**
 * What each test enters: it cannot kill a mutant in a function that it does not enter. A file keeps it between
 * runs. A test runs again if it changes, or if a file that it enters gets other functions. That may leave out a
 * test that now takes another way, and then a mutant survives that should not; none is killed that should
 * survive.
 */
export class Coverage {
  readonly #measured = new Kept<Measured>('node_modules/.cache/mutants-coverage.jsonl')
  readonly #sources: ReadonlyMap<string, string>
  /** The names of the functions of each file. */
  readonly #functions: ReadonlyMap<string, string>
  /** By test and file. */
  readonly #kills = new Map<string, number>()

  constructor(sources: readonly string[]) {
    this.#sources = new Map(sources.map((file) => [file, readFileSync(file, 'utf8')]))
    this.#functions = new Map([...this.#sources].map(([file, source]) => [file, namesIn(file, source)]))
  }

  /** Runs tests whose sources have changed, in workshops that find out what they enter. */
  async measure(tests: readonly string[], open: () => Promise<readonly Workshop[]>): Promise<void> {
    for (const [test, each] of this.#measured.values) {
      if (!tests.includes(test) || each.on !== this.#hashOf(each)) this.#measured.delete(test)
    }
    const changed = tests.filter((test) => !this.#measured.values.has(test))
    if (changed.length === 0) return
    console.log(`${changed.length} files of tests run once, to see what they enter`)
    const parts = Array.from({ length: Math.ceil(changed.length / AT_ONCE) }, (_, i) =>
      changed.slice(i * AT_ONCE, (i + 1) * AT_ONCE),
    )
    await shareOut(await open(), parts, async (workshop, part) => {
      await workshop.cover(part, (covered) => {
        this.#measured.set(covered.test, { ...covered, on: this.#hashOf(covered) })
        const seconds = (covered.ms / 1000).toFixed(1)
        console.log(`${this.#measured.values.size}/${tests.length} ${covered.test}, ${seconds} s`)
      })
    })
    for (const test of changed) {
      if (this.#measured.values.has(test)) continue
      console.error(`${test} fails without a mutant. It counts for nothing until it changes.`)
      const covered = { test, entered: [], ms: 0 }
      this.#measured.set(test, { ...covered, on: this.#hashOf(covered) })
    }
  }

  /**
   * The tests that enter the function of a mutant. First come those that have the name of the file, that have
   * killed others of it, that enter most of it and little else, and that are quick. The last are left out if
   * all would take longer than `maxMs`. Those for distributed tables come after the others, which take the
   * same way in most functions.
   */
  testsOf(mutant: Mutant, maxMs: number = Number.POSITIVE_INFINITY): readonly string[] {
    let sumMs = 0
    const isThere = this.#isEntered(mutant)
    const worth = ({ test, entered, ms }: Measured) => {
      const kills = this.#kills.get(`${test} ${mutant.file}`) ?? 0
      const here = entered.filter((each) => fileOf(each) === mutant.file).length
      const isNamedAlike = basename(test, '.test.ts') === basename(mutant.file, '.ts')
      const rank = test.includes('distributed: ') ? 0.01 : isNamedAlike ? 10 : 1
      return (rank * (1 + kills) * (1 + here)) / Math.sqrt(entered.length * ms)
    }
    return [...this.#measured.values.values()]
      .filter(({ entered }) => entered.some(isThere))
      .toSorted((one, other) => worth(other) - worth(one))
      .filter(({ ms }, i) => {
        sumMs += ms
        return sumMs <= maxMs || i === 0
      })
      .map(({ test }) => test)
  }

  /** What is outside of any function runs with those of its file, and of the files that import it. */
  #isEntered({ file, within }: Mutant): (entered: Entered) => boolean {
    if (within !== undefined) return (entered) => entered === within
    const name = `/${file.split('/').at(-1)}'`
    const files = [...this.#sources].flatMap(([each, text]) => (text.includes(name) ? [each] : []))
    return (entered) => fileOf(entered) === file || files.includes(fileOf(entered))
  }

  /** Notes that a test has killed a mutant. */
  learn(test: string, { file }: Mutant): void {
    const key = `${test} ${file}`
    this.#kills.set(key, (this.#kills.get(key) ?? 0) + 1)
  }

  /** How long a test takes without a mutant. */
  msOf(test: string): number {
    return this.#measured.values.get(test)?.ms ?? 0
  }

  #hashOf({ test, entered }: Covered): string {
    const own = fileOfTest(test)
    const hash = createHash('sha256').update(existsSync(own) ? readFileSync(own) : '')
    for (const file of [...new Set(entered.map(fileOf))].toSorted()) {
      hash.update(this.#functions.get(file) ?? '')
    }
    return hash.digest('hex')
  }
}

/** Such as `test/unit/notes.test.ts`. */
export function fileOfTest(test: string): string {
  return test.slice(test.indexOf(': ') + 2)
}

function namesIn(file: string, source: string): string {
  return [...functionsIn(file, placesIn(file, source)).values()].join('\n')
}
