import { readdirSync } from 'node:fs'
import { SLOW } from './areas.ts'
import { Coverage } from './coverage.ts'
import type { Mutant } from './mutants.ts'
import { nameOf, type Test } from './test.ts'

/** Snapshots of statements, in test/package, are left out: they show a change, and not whether it matters. */
const ON_SERVER = [
  ...['statements', 'quotas', 'drivers', 'transactions', 'answers', 'tables', 'outages', 'secrets', 'alone'],
  ...['http', 'concurrency'],
]

/** What needs no server. */
const ONCE = /^(alone|package)\//

/** A server is several times as fast as PGlite, which has a code path of its own and so comes last. */
const ON_PGLITE = ['drivers', 'tables', 'transactions']

/** What these tests see depends on the moment. */
const TIMED =
  /^(concurrency|outages)\/|^alone\/outages$|^drivers\/(cleanup|waiting)$|^tables\/auto-migrate-at/

/** What takes longer is for the last round, in which several mutants share it. */
const NEAR_MS = 8_000

/** How long a test file takes that has not been run yet. */
const USUAL_MS = 1_000

/** All tests that mutants are tried on first. */
export function testsOnServer(): readonly Test[] {
  return [...testsIn(ON_SERVER), 'package/cli'].map((path) => ({
    project: ONCE.test(path) ? 'pglite 0.45' : 'node-postgres 1.0',
    path,
  }))
}

/**
 * The tests that a mutant must get past: those that execute its line. The order is learned: tests that have
 * killed mutants of the same file come first, then those of the same area, and tests that are quick and about
 * little else before others.
 */
export class Stages {
  #coverage: Coverage = Coverage.UNKNOWN
  readonly #all = testsOnServer()
  /** By test, then by file and area. */
  readonly #kills = new Map<string, Map<string, number>>()
  readonly #tookMs = new Map<string, number>()
  readonly #passed = new Set<string>()
  /** By the mutant's id. */
  readonly #past = new Map<string, ReadonlySet<string>>()

  /** Which tests execute which lines. */
  know(coverage: Coverage): void {
    this.#coverage = coverage
  }

  /** The best ones, for a few seconds. */
  near(mutant: Mutant): readonly Test[] {
    let tookMs = 0
    return this.far([mutant]).filter((test) => {
      tookMs += this.#msOf(test)
      return tookMs <= NEAR_MS
    })
  }

  /** All that one of them has not got past, the best first. */
  far(mutants: readonly Mutant[]): readonly Test[] {
    const worth = (test: Test) => {
      const kills = mutants.map(
        ({ file, area }) => 100 * this.#killsOf(test, file) + this.#killsOf(test, area),
      )
      // A test that executes a thousand statements counts like one that has killed once in the area.
      return (1_000 * this.#coverage.focus(test) + Math.max(...kills)) / this.#msOf(test)
    }
    const isWorthIt = (test: Test, mutant: Mutant) =>
      SLOW[test.path]?.includes(mutant.area) !== false && this.mayFail(test, mutant)
    return this.#all
      .filter((test) => mutants.some((mutant) => isWorthIt(test, mutant)))
      .toSorted((one, other) => worth(other) - worth(one))
  }

  /** Whether the test executes the mutant's line, and the mutant has not got past it. */
  mayFail(test: Test, mutant: Mutant): boolean {
    return this.#coverage.covers(test, mutant) && !this.#past.get(mutant.id)?.has(nameOf(test))
  }

  pglite(): readonly Test[] {
    return testsIn(ON_PGLITE).map((path) => ({ project: 'pglite 0.45', path }))
  }

  /** Whether a test has passed without a mutant. */
  hasPassed(test: Test): boolean {
    return this.#passed.has(nameOf(test))
  }

  passed(test: Test, hasPassed: boolean): void {
    if (hasPassed) this.#passed.add(nameOf(test))
    else this.#passed.delete(nameOf(test))
  }

  /** A mutant need not be tried on these again. */
  gotPast({ id }: Mutant, tests: readonly Test[]): void {
    this.#past.set(id, new Set([...(this.#past.get(id) ?? []), ...tests.map(nameOf)]))
  }

  took(times: readonly { readonly test: Test; readonly ms: number }[]): void {
    for (const { test, ms } of times) this.#tookMs.set(nameOf(test), ms)
  }

  /** Notes which test has killed a mutant, if one has. */
  learn({ area, file }: Mutant, killer: Test | 'types' | undefined): void {
    if (killer === undefined || killer === 'types') return
    const kills = this.#kills.get(nameOf(killer)) ?? new Map<string, number>()
    for (const each of [area, file]) kills.set(each, (kills.get(each) ?? 0) + 1)
    this.#kills.set(nameOf(killer), kills)
  }

  dependsOnTime({ path }: Test): boolean {
    return TIMED.test(path)
  }

  #killsOf(test: Test, areaOrFile: string): number {
    return this.#kills.get(nameOf(test))?.get(areaOrFile) ?? 0
  }

  #msOf(test: Test): number {
    return this.#tookMs.get(nameOf(test)) ?? USUAL_MS
  }
}

function testsIn(folders: readonly string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(`test/${folder}`)
      .filter((file) => file.endsWith('.test.ts'))
      .map((file) => `${folder}/${file.replace('.test.ts', '')}`),
  )
}
