import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import type { Mutant } from './mutants.ts'
import { fileOf, nameOf, type Test, testNamed } from './test.ts'
import type { Fate } from './trial.ts'

const FILE = 'test/mutants/killers.json'
const TYPES = 'the types'

/** What killed each mutant in earlier runs: a test, or the types alone. A file in the repository keeps it. */
export class Killers {
  #byId: Map<string, string> = read()
  readonly #atFirst: ReadonlySet<string> = new Set(this.#byId.keys())

  /** Undefined for a new mutant, and for one whose test is gone. */
  of({ id }: Mutant): Test | 'types' | undefined {
    const name = this.#byId.get(id)
    if (name === undefined) return undefined
    if (name === TYPES) return 'types'
    const test = testNamed(name)
    return existsSync(fileOf(test)) ? test : undefined
  }

  /** Writes down what killed a mutant, at once: a run that is stopped loses nothing. */
  note({ id }: Mutant, { kind, test }: Fate): void {
    const name = kind === 'compile' ? TYPES : test && nameOf(test)
    if (name !== undefined && name !== this.#byId.get(id)) this.#change((byId) => byId.set(id, name))
  }

  /** Forgets the mutants of before that are made no more. */
  keepOnly(mutants: readonly Mutant[]): void {
    const made = new Set(mutants.map(({ id }) => id))
    const gone = [...this.#atFirst].filter((id) => !made.has(id))
    if (gone.length === 0) return
    this.#change((byId) => {
      for (const id of gone) byId.delete(id)
    })
  }

  /** Another run may have written to the file in the meantime. */
  #change(change: (byId: Map<string, string>) => void): void {
    this.#byId = read()
    change(this.#byId)
    const sorted = [...this.#byId].toSorted(([one], [other]) => (one < other ? -1 : 1))
    const draft = `${FILE}.${process.pid}`
    writeFileSync(draft, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`)
    renameSync(draft, FILE)
  }
}

function read(): Map<string, string> {
  return new Map(Object.entries(JSON.parse(readFileSync(FILE, 'utf8'))))
}
