import { appendFileSync, existsSync, readFileSync, rmSync } from 'node:fs'
import type { Mutant } from './mutants.ts'
import type { Test } from './test.ts'
import { hashOf, treeHash } from './tree.ts'
import type { Fate } from './trial.ts'

/** What has been found of a mutant. */
interface Entry {
  readonly id: string
  /** A hash of its text. */
  readonly text: string
  /** A hash of the source and the tests that they are tried on. */
  readonly tree: string
  /** Undefined if it has only got past these tests. */
  readonly fate?: Fate
  readonly past?: readonly Test[]
}

const FILE = 'mutants.jsonl'

/** The results as they come, in a file, so that a run that was stopped can go on. */
export class Journal {
  readonly #tree = treeHash()
  readonly #entries = new Map<string, Entry>()

  /** @param goesOn Whether to take what is in the file. Otherwise it begins anew. */
  constructor(goesOn: boolean) {
    if (!goesOn) rmSync(FILE, { force: true })
    const text = existsSync(FILE) ? readFileSync(FILE, 'utf8') : ''
    for (const line of text.split('\n').filter(Boolean)) {
      const entry: Entry = JSON.parse(line)
      this.#entries.set(entry.id, entry)
    }
  }

  /** A kill counts as long as the mutant is the same, a survival as long as source and tests are. */
  fateOf(mutant: Mutant): Fate | undefined {
    const entry = this.#of(mutant)
    return entry?.fate && (entry.fate.kind !== 'survives' || entry.tree === this.#tree)
      ? entry.fate
      : undefined
  }

  /** The tests that it has got past, if that is all that is known. */
  pastOf(mutant: Mutant): readonly Test[] | undefined {
    const entry = this.#of(mutant)
    return entry?.tree === this.#tree ? entry.past : undefined
  }

  add(mutant: Mutant, found: Pick<Entry, 'fate' | 'past'>): void {
    const entry: Entry = { id: mutant.id, text: hashOf(mutant.text), tree: this.#tree, ...found }
    this.#entries.set(mutant.id, entry)
    appendFileSync(FILE, `${JSON.stringify(entry)}\n`)
  }

  #of({ id, text }: Mutant): Entry | undefined {
    const entry = this.#entries.get(id)
    return entry?.text === hashOf(text) ? entry : undefined
  }
}
