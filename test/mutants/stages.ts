import { readdirSync } from 'node:fs'
import { AREAS, SLOW } from './areas.ts'
import type { Mutant } from './mutants.ts'
import { nameOf, type Test } from './test.ts'

/** Snapshots of statements, in test/package, are left out: they show a change, and not whether it matters. */
const ON_SERVER = [
  ...['statements', 'quotas', 'drivers', 'transactions', 'answers', 'tables', 'outages', 'secrets', 'alone'],
  'concurrency',
]

/** What needs no server. */
const ONCE = /^(alone|package)\//

/** A server is several times as fast as PGlite, which has a code path of its own and so comes last. */
const ON_PGLITE = ['drivers', 'tables', 'transactions']

/** What these tests see depends on the moment. */
const TIMED =
  /^(concurrency|outages)\/|^alone\/outages$|^drivers\/(cleanup|waiting)$|^tables\/auto-migrate-at/

/**
 * The tests that a mutant must get past: near and quick ones first, then all others. The order is learned:
 * tests that have killed mutants of the same file come first, then those of the same area. Slow tests come
 * last.
 */
export class Stages {
  /** By test, then by file and area. */
  readonly #kills = new Map<string, Map<string, number>>()
  readonly #tookMs = new Map<string, number>()
  readonly #passed = new Set<string>()

  /** Those that are listed for the area, and those that have killed one of its mutants. */
  near({ area, file }: Mutant): readonly Test[] {
    const listed = AREAS.find(({ name }) => name === area)?.near ?? []
    const killers = [...this.#kills.keys()].filter((path) => this.#killsOf(path, area) > 0)
    const rank = (path: string) => 1000 * this.#killsOf(path, file) + this.#killsOf(path, area)
    return [...new Set([...listed, ...killers])]
      .toSorted((one, other) => rank(other) - rank(one))
      .map(onServer)
  }

  far(mutant: Mutant): readonly Test[] {
    const near = new Set(this.near(mutant).map(({ path }) => path))
    return testsIn(ON_SERVER)
      .filter((path) => !near.has(path) && (SLOW[path]?.includes(mutant.area) ?? true))
      .map(onServer)
      .toSorted((one, other) => this.#msOf(one) - this.#msOf(other))
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

  took(times: readonly { readonly test: Test; readonly ms: number }[]): void {
    for (const { test, ms } of times) this.#tookMs.set(nameOf(test), ms)
  }

  killed({ area, file }: Mutant, { project, path }: Test): void {
    if (project !== onServer(path).project) return
    const kills = this.#kills.get(path) ?? new Map<string, number>()
    for (const each of [area, file]) kills.set(each, (kills.get(each) ?? 0) + 1)
    this.#kills.set(path, kills)
  }

  dependsOnTime({ path }: Test): boolean {
    return TIMED.test(path)
  }

  #killsOf(path: string, areaOrFile: string): number {
    return this.#kills.get(path)?.get(areaOrFile) ?? 0
  }

  #msOf(test: Test): number {
    return this.#tookMs.get(nameOf(test)) ?? 0
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
