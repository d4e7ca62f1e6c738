import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { type Coverage, fileOfTest } from './coverage.ts'
import { Kept } from './kept.ts'
import type { Mutant } from './mutants.ts'
import type { Fate } from './trial.ts'

interface Result extends Fate {
  /** How long its tests could take together; without it, they could take any time. */
  readonly maxMs?: number
  /** A hash of the mutant's file, and of the test that killed it or of all that it passed. */
  readonly on: string
}

/**
 * How mutants ended, also in earlier runs. A result no longer counts if its file changes, or a test that it is
 * from. A survivor counts no longer if another test enters its function, or if its tests may take longer now.
 */
export class Results {
  readonly #kept = new Kept<Result>('node_modules/.cache/mutants-results.jsonl')
  readonly #coverage: Coverage
  #isClosed = false
  /** As they are at the start, when they are copied for the tests. */
  readonly #texts = new Map(['src', 'test'].flatMap(textsIn))

  constructor(coverage: Coverage) {
    this.#coverage = coverage
  }

  /** Nothing more is kept. */
  close(): void {
    this.#isClosed = true
  }

  get(mutant: Mutant, maxMs: number): Fate | undefined {
    const result = this.#kept.values.get(nameOf(mutant))
    if (result?.on !== this.#hashOf(mutant, result?.test)) return undefined
    const isOver = result.test !== undefined || (result.maxMs ?? Number.POSITIVE_INFINITY) >= maxMs
    return isOver ? result : undefined
  }

  set(mutant: Mutant, fate: Fate, maxMs: number): void {
    if (this.#isClosed) return
    const on = this.#hashOf(mutant, fate.test)
    this.#kept.set(nameOf(mutant), { ...fate, on, ...(Number.isFinite(maxMs) ? { maxMs } : {}) })
  }

  delete(mutant: Mutant): void {
    this.#kept.delete(nameOf(mutant))
  }

  #hashOf(mutant: Mutant, test: string | undefined): string {
    const tests = test === undefined ? this.#coverage.testsOf(mutant).toSorted() : [test]
    const hash = createHash('sha256')
      .update(this.#texts.get(mutant.file) ?? '')
      .update(mutant.text)
    for (const each of tests) hash.update(each).update(this.#texts.get(fileOfTest(each)) ?? '')
    return hash.digest('hex')
  }
}

function textsIn(folder: string): readonly [string, string][] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' }).flatMap((name) =>
    name.endsWith('.ts') ? [[`${folder}/${name}`, readFileSync(`${folder}/${name}`, 'utf8')]] : [],
  )
}

function nameOf({ file, where, kind }: Mutant): string {
  return `${file} ${where}, ${kind}`
}
