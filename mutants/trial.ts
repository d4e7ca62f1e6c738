import type { Coverage } from './coverage.ts'
import type { Failed } from './messages.ts'
import type { Mutant } from './mutants.ts'
import type { Workshop } from './workshop.ts'

/**
 * How a mutant ends: by a test, by a test that it makes wait for ever, by the types alone, or not at all. If no
 * test that runs here enters its function, as for what only `distributed` takes, nothing is known of it.
 */
export interface Fate {
  readonly kind: 'killed' | 'killed by time' | 'killed by types' | 'survived' | 'not entered'
  /** What it failed. */
  readonly by: string
  readonly test?: string
}

/** So many of the best tests run before the others: Vitest runs one project after the other. */
const FIRST = 5

/** Tries a mutant on the tests that execute it, as far as the time allows, and then on the type checker. */
export async function fateOf(
  mutant: Mutant,
  workshop: Workshop,
  coverage: Coverage,
  maxMs: number,
): Promise<Fate> {
  const tests = coverage.testsOf(mutant, maxMs)
  for (const some of [tests.slice(0, FIRST), tests.slice(FIRST)]) {
    const failed = await failedBy(mutant, some, workshop)
    if (!failed) continue
    const { test, name, isTimeout } = failed
    coverage.learn(test, mutant)
    return { kind: isTimeout ? 'killed by time' : 'killed', by: `by ${test}: ${name}`, test }
  }
  if (!(await workshop.compiles(mutant))) return { kind: 'killed by types', by: 'by the type checker' }
  return { kind: tests.length > 0 ? 'survived' : 'not entered', by: `${tests.length} tests` }
}

/** The first test that the mutant fails twice: once may be by chance. */
async function failedBy(
  mutant: Mutant,
  tests: readonly string[],
  workshop: Workshop,
): Promise<Failed | undefined> {
  for (let left = tests; left.length > 0; ) {
    const { failed, ended } = await workshop.run(left, mutant)
    if (!failed) return undefined
    const again = await workshop.run([failed.test], mutant)
    if (again.failed) return again.failed
    left = left.filter((test) => test !== failed.test && !ended.includes(test))
  }
  return undefined
}
