import type { Coverage } from './coverage.ts'
import type { Failed } from './messages.ts'
import type { Mutant } from './mutants.ts'
import type { Workshop } from './workshop.ts'

/**
 * How a mutant ends: by a test, by a test that it makes wait forever, by the types alone, or not at all. If no
 * test that runs here enters its function, nothing is known of it.
 */
export interface Fate {
  readonly kind: 'killed' | 'killed by time' | 'killed by types' | 'survived' | 'not entered'
  /** What it failed. */
  readonly by: string
  readonly test?: string
}

/** So many of the best tests run before the others: Vitest runs one project after the other. */
const FIRST = 5

/** A test of arithmetic fails by its mutant, and not because the machine is busy. */
const WITHOUT_CHANCE = /\/(unit|answers|quotas|statements)\//

/** Tries a mutant on the best tests that execute it, on the type checker, and on others as time allows. */
export async function fateOf(
  mutant: Mutant,
  workshop: Workshop,
  coverage: Coverage,
  maxMs: number,
): Promise<Fate> {
  const tests = coverage.testsOf(mutant, maxMs)
  const best = await killedBy(mutant, tests.slice(0, FIRST), workshop, coverage)
  if (best) return best
  if (!(await workshop.compiles(mutant))) return { kind: 'killed by types', by: 'by the type checker' }
  const other = await killedBy(mutant, tests.slice(FIRST), workshop, coverage)
  if (other) return other
  const all = coverage.testsOf(mutant).length
  return { kind: all > 0 ? 'survived' : 'not entered', by: `${tests.length} of ${all} files of tests` }
}

async function killedBy(...[mutant, ...on]: Parameters<typeof failedBy>): Promise<Fate | undefined> {
  const failed = await failedBy(mutant, ...on)
  if (!failed) return undefined
  const { test, name, isTimeout } = failed
  return { kind: isTimeout ? 'killed by time' : 'killed', by: `by ${test}: ${name}`, test }
}

/** The first test that the mutant fails; twice, if once may be by chance. */
async function failedBy(
  mutant: Mutant,
  tests: readonly string[],
  workshop: Workshop,
  coverage: Coverage,
): Promise<Failed | undefined> {
  for (let left = tests; left.length > 0; ) {
    const { failed, ended } = await workshop.run(left, stallMsOf(left, coverage), mutant)
    if (!failed || (!failed.isTimeout && WITHOUT_CHANCE.test(failed.test))) return failed
    const again = await workshop.run([failed.test], stallMsOf([failed.test], coverage), mutant)
    if (again.failed) return again.failed
    left = left.filter((test) => test !== failed.test && !ended.includes(test))
  }
  return undefined
}

/** A machine with other work may give the tests little time. */
export function stallMsOf(tests: readonly string[], coverage: Coverage): number {
  return 20_000 + 4 * Math.max(...tests.map((test) => coverage.msOf(test)))
}
