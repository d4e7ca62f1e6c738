import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Entered, fileOf, functionsIn } from './entered.ts'
import type { Covered } from './messages.ts'
import type { Mutant } from './mutants.ts'
import { placesIn } from './walk.ts'
import { shareOut, type Workshop } from './workshop.ts'

interface Measured extends Covered {
  /** A hash of the test and of the functions that it enters. */
  readonly on: string
}

const FILE = 'node_modules/.cache/mutants.json'

/** So many tests run one after the other in one process. */
const AT_ONCE = 12

/**
 * What each test enters: it cannot kill a mutant in a function that it does not enter. A file keeps it between
 * runs. A test runs again if it changes, or a function that it enters. That may leave out a test that now takes
 * another way, and then a mutant survives that should not; none is killed that should survive.
 */
export class Coverage {
  readonly #measured: Map<string, Measured>
  readonly #sources: ReadonlyMap<string, string>
  readonly #functions: ReadonlyMap<Entered, string>
  /** By test and file. */
  readonly #kills = new Map<string, number>()

  constructor(sources: readonly string[]) {
    this.#sources = new Map(sources.map((file) => [file, readFileSync(file, 'utf8')]))
    this.#functions = new Map([...this.#sources].flatMap(textsIn))
    this.#measured = new Map(existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : [])
  }

  /** Runs tests whose sources have changed, in workshops that find out what they enter. */
  async measure(tests: readonly string[], open: () => Promise<readonly Workshop[]>): Promise<void> {
    for (const [test, each] of this.#measured) {
      if (!tests.includes(test) || each.on !== this.#hashOf(each)) this.#measured.delete(test)
    }
    const changed = tests.filter((test) => !this.#measured.has(test))
    if (changed.length === 0) return
    console.log(`${changed.length} files of tests run once, to see what they enter`)
    mkdirSync(dirname(FILE), { recursive: true })
    const parts = Array.from({ length: Math.ceil(changed.length / AT_ONCE) }, (_, i) =>
      changed.slice(i * AT_ONCE, (i + 1) * AT_ONCE),
    )
    await shareOut(await open(), parts, async (workshop, part) => {
      await workshop.cover(part, (covered) => {
        this.#measured.set(covered.test, { ...covered, on: this.#hashOf(covered) })
      })
      // What has been found out stays if the run is interrupted.
      writeFileSync(FILE, JSON.stringify([...this.#measured]))
      console.log(`${this.#measured.size}/${tests.length} files of tests`)
    })
    for (const test of changed) {
      if (!this.#measured.has(test)) console.error(`${test} fails without a mutant, and counts for nothing.`)
    }
  }

  /**
   * The tests that enter the function of a mutant. First come those that have killed others of the file, that
   * enter most of it and little else, and that are quick. The last are left out if all would take longer than
   * `maxMs`.
   */
  testsOf(mutant: Mutant, maxMs: number): readonly string[] {
    let sumMs = 0
    const isThere = this.#isEntered(mutant)
    const worth = ({ test, entered, ms }: Measured) => {
      const kills = this.#kills.get(`${test} ${mutant.file}`) ?? 0
      const here = entered.filter((each) => fileOf(each) === mutant.file).length
      return ((1 + kills) * (1 + here)) / Math.sqrt(entered.length * ms)
    }
    return [...this.#measured.values()]
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

  #hashOf({ test, entered }: Covered): string {
    const own = test.slice(test.indexOf(': ') + 2)
    const hash = createHash('sha256').update(existsSync(own) ? readFileSync(own) : '')
    for (const each of entered) hash.update(this.#functions.get(each) ?? '')
    return hash.digest('hex')
  }
}

/** The functions of a source, with their text. */
function textsIn([file, source]: readonly [string, string]): readonly [Entered, string][] {
  return [...functionsIn(file, placesIn(file, source))].map(([{ start, end }, name]) => [
    name,
    source.slice(start, end),
  ])
}
