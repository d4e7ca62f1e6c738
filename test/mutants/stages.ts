import { readdirSync } from 'node:fs'
import { AREAS, SLOW } from './areas.ts'
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

/** What takes longer is for the second round, when most mutants are killed. */
const NEAR_MS = 8_000

/** How long a test file takes that has not been run yet. */
const USUAL_MS = 1_000

/**
 * The tests that a mutant must get past: near and quick ones first, then all others. The order is learned:
 * tests that have killed mutants of the same file come first, then those of the same area, and quick tests
 * before slow ones.
 */
export class Stages {
  /** By test, then by file and area. */
  readonly #kills = new Map<string, Map<string, number>>()
  readonly #tookMs = new Map<string, number>()
  readonly #passed = new Set<string>()
  /** By the mutant's id. */
  readonly #past = new Map<string, readonly Test[]>()

  /** The best of those of the area. */
  near(mutant: Mutant): readonly Test[] {
    let tookMs = 0
    return this.ofArea(mutant).filter((test) => {
      tookMs += this.#msOf(test)
      return tookMs <= NEAR_MS
    })
  }

  /**
   * Those that are listed for the area, and those that have killed one of its mutants, the best first, without
   * those that it has got past.
   */
  ofArea(mutant: Mutant): readonly Test[] {
    const { area, file } = mutant
    const listed = AREAS.find(({ name }) => name === area)?.near ?? []
    const killers = [...this.#kills.keys()].filter((path) => this.#killsOf(path, area) > 0)
    const worth = (path: string) => {
      const kills = 100 * this.#killsOf(path, file) + this.#killsOf(path, area)
      return (1 + kills) / this.#msOf(onServer(path))
    }
    const past = new Set(this.pastOf(mutant).map(nameOf))
    return [...new Set([...listed, ...killers])]
      .toSorted((one, other) => worth(other) - worth(one))
      .map(onServer)
      .filter((test) => !past.has(nameOf(test)))
  }

  /** All that one of them has not got past: those first that have killed most, then the quick ones. */
  far(mutants: readonly Mutant[]): readonly Test[] {
    const areas = mutants.map(({ area }) => area)
    const killsOf = ({ path }: Test) => areas.reduce((sum, area) => sum + this.#killsOf(path, area), 0)
    return testsIn(ON_SERVER)
      .filter((path) => SLOW[path]?.some((area) => areas.includes(area)) ?? true)
      .map(onServer)
      .filter(
        (test) =>
          !mutants.every((mutant) => this.pastOf(mutant).some((past) => nameOf(past) === nameOf(test))),
      )
      .toSorted((one, other) => killsOf(other) - killsOf(one) || this.#msOf(one) - this.#msOf(other))
  }

  pglite(): readonly Test[] {
    return testsIn(ON_PGLITE).map((path) => ({ project: 'pglite 0.45', path }))
  }

  /** Whether a test has passed without a mutant. */
  hasPassed(test: Test): boolean {
    return this.#passed.has(nameOf(test))
  }

  passed(test: Test): void {
    this.#passed.add(nameOf(test))
  }

  /** A mutant need not be tried on these again. */
  gotPast({ id }: Mutant, tests: readonly Test[]): void {
    this.#past.set(id, [...(this.#past.get(id) ?? []), ...tests])
  }

  pastOf({ id }: Mutant): readonly Test[] {
    return this.#past.get(id) ?? []
  }

  took(times: readonly { readonly test: Test; readonly ms: number }[]): void {
    for (const { test, ms } of times) this.#tookMs.set(nameOf(test), ms)
  }

  /** Notes which test has killed a mutant, if one has. */
  learn({ area, file }: Mutant, test: Test | undefined): void {
    if (!test || test.project !== onServer(test.path).project) return
    const kills = this.#kills.get(test.path) ?? new Map<string, number>()
    for (const each of [area, file]) kills.set(each, (kills.get(each) ?? 0) + 1)
    this.#kills.set(test.path, kills)
  }

  dependsOnTime({ path }: Test): boolean {
    return TIMED.test(path)
  }

  #killsOf(path: string, areaOrFile: string): number {
    return this.#kills.get(path)?.get(areaOrFile) ?? 0
  }

  #msOf(test: Test): number {
    return this.#tookMs.get(nameOf(test)) ?? USUAL_MS
  }
}

function onServer(path: string): Test {
  return { project: ONCE.test(path) ? 'once' : 'node-postgres 1.0', path }
}

function testsIn(folders: readonly string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(`test/${folder}`)
      .filter((file) => file.endsWith('.test.ts'))
      .map((file) => `${folder}/${file.replace('.test.ts', '')}`),
  )
}
