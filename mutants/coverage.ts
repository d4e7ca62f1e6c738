import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import type { Mutant } from './mutants.ts'
import { type Ended, startTests } from './tests.ts'

/** What a test enters: it cannot kill a mutant in another function. `on` is a hash of the test. */
type Covered = Ended & { readonly on: string }
type Coverage = ReadonlyMap<string, Covered>

/** What has noticed a mutant in a file. */
export interface Kill {
  readonly file: string
  readonly by: string
  readonly failed: string
}

const KEPT = 'node_modules/.cache/mutants.json'

/** Tests that have changed since they last passed run once. One that fails counts for nothing. */
export async function coverageOf(tests: readonly string[]): Promise<Coverage> {
  const kept: [string, Covered][] = existsSync(KEPT) ? JSON.parse(readFileSync(KEPT, 'utf8')) : []
  const coverage = new Map(kept.filter(([test, { on }]) => tests.includes(test) && on === hashOf(test)))
  const changed = tests.filter((test) => !coverage.has(test))
  if (changed.length === 0) return coverage
  const covering = await startTests(true)
  for (const test of changed) {
    const ended = await covering.run(test)
    console.log(`${test}: ${ended.failed || `${Math.round(ended.ms)} ms`}`)
    if (ended.failed) continue
    coverage.set(test, { ...ended, on: hashOf(test) })
    writeFileSync(KEPT, JSON.stringify([...coverage]))
  }
  return coverage
}

/**
 * The tests that enter the function of a mutant: first those that have killed others of its file, that enter
 * little, and that are quick. A new function, and what is in none, has the tests of its file.
 */
export function testsOf(
  { file, within }: Mutant,
  coverage: Coverage,
  kills: readonly Kill[],
): readonly string[] {
  const [tests = [...coverage]] = [
    (each: string) => each === within,
    (each: string) => each.startsWith(`${file}:`),
  ]
    .map((isIn) => [...coverage].filter(([, { entered }]) => entered.some(isIn)))
    .filter(({ length }) => length > 0)
  const worth = ([test, { entered, ms }]: [string, Ended]) => {
    const times = kills.filter((kill) => kill.by === test && kill.file === file).length
    return (1 + times) / Math.sqrt((1 + entered.length) * (1 + ms))
  }
  return tests.toSorted((one, other) => worth(other) - worth(one)).map(([test]) => test)
}

/** Of the file of a test such as `pglite 0.45: test/unit/search.test.ts`. */
function hashOf(test: string): string {
  const file = test.slice(test.indexOf(': ') + 2)
  return createHash('sha256').update(readFileSync(file)).digest('hex')
}
