import { readFileSync, writeFileSync } from 'node:fs'
import type { Mutant } from './mutants.ts'
import { nameOf, type Test, testNamed } from './test.ts'
import type { Fate } from './trial.ts'

const FILE = 'test/mutants/killers.json'
const TYPES = 'the types'

/** What killed each mutant in earlier runs: a test, or the types alone. A file in the repository keeps it. */
export class Killers {
  readonly #byId: Map<string, string> = new Map(Object.entries(JSON.parse(readFileSync(FILE, 'utf8'))))

  of({ id }: Mutant): Test | 'types' | undefined {
    const name = this.#byId.get(id)
    if (name === undefined) return undefined
    return name === TYPES ? 'types' : testNamed(name)
  }

  /** Writes it to the file at once, so that a run that is stopped has lost nothing. */
  add({ id }: Mutant, { kind, test }: Fate): void {
    const name = kind === 'compile' ? TYPES : test && nameOf(test)
    if (name === this.#byId.get(id)) return
    if (name === undefined) this.#byId.delete(id)
    else this.#byId.set(id, name)
    this.#save()
  }

  /** Forgets those that are made no more. */
  keepOnly(mutants: readonly Mutant[]): void {
    const made = new Set(mutants.map(({ id }) => id))
    for (const id of [...this.#byId.keys()]) if (!made.has(id)) this.#byId.delete(id)
    this.#save()
  }

  #save(): void {
    const sorted = [...this.#byId].toSorted(([one], [other]) => (one < other ? -1 : 1))
    writeFileSync(FILE, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`)
  }
}
