import type { Told } from './host.ts'
import type { Mutant } from './mutants.ts'
import type { Stages } from './stages.ts'
import { nameOf, type Test } from './test.ts'
import type { Workshop } from './workshop.ts'

/** How a mutant ends: by a test, by a test that waits too long, by the type check alone, or not at all. */
export interface Fate {
  readonly kind: 'tests' | 'time' | 'compile' | 'survives'
  /** What it failed, in words. */
  readonly by: string
  /** The test, if there is one. */
  readonly test?: Test
}

/** Tries mutants in a workshop. */
export class Trial {
  readonly #workshop: Workshop
  readonly #stages: Stages
  /** By project. */
  readonly #lastKillers = new Map<string, Test>()
  #areTypesRight: Promise<boolean> | undefined

  constructor(workshop: Workshop, stages: Stages) {
    this.#workshop = workshop
    this.#stages = stages
  }

  /** The fate of a mutant by what killed it before. */
  async by(mutant: Mutant, killer: Test | 'types' | undefined): Promise<Fate | undefined> {
    if (killer === undefined) return undefined
    if (killer === 'types') return this.#byTypes(mutant)
    // A test may miss it once by chance. To search for another takes longer.
    const fate = (await this.#tryOn(mutant, killer)) ?? (await this.#tryOn(mutant, killer))
    if (!fate) this.#stages.gotPast(mutant, [killer])
    return fate
  }

  /**
   * Fails if tests that killed now fail without a mutant, as they do if the server has gone away. The last one
   * of each project is tried.
   */
  async checkItself(): Promise<void> {
    for (const test of this.#lastKillers.values()) {
      const isRight = async () => passes(await this.#workshop.run([], [test]))
      if ((await isRight()) || (await isRight())) continue
      throw new Error(
        `${test.path} now fails without a mutant. Restore killers.json, for this may be all wrong.`,
      )
    }
  }

  /** The fate of a mutant by the tests that are near. */
  async near(mutant: Mutant): Promise<Fate | undefined> {
    const tests = this.#stages.near(mutant)
    const fate = (await this.#tryTogether([mutant], tests)).get(mutant)
    if (!fate) this.#stages.gotPast(mutant, tests)
    return fate
  }

  /**
   * The fates of mutants of different files by all other tests and by the types. They are in the source
   * together: most that get so far survive, and one run shows it of all of them.
   */
  async far(mutants: readonly Mutant[]): Promise<ReadonlyMap<Mutant, Fate>> {
    const fates = await this.#tryTogether(mutants, this.#stages.far(mutants))
    const left = mutants.filter((mutant) => !fates.has(mutant))
    const last = await this.#tryTogether(left, this.#stages.pglite())
    for (const mutant of left) {
      const fate = last.get(mutant) ?? (await this.#byTypes(mutant))
      fates.set(mutant, fate ?? { kind: 'survives', by: '' })
    }
    return fates
  }

  async #byTypes(mutant: Mutant): Promise<Fate | undefined> {
    if (await this.#workshop.compiles([mutant])) return undefined
    this.#areTypesRight ??= this.#workshop.compiles([])
    return (await this.#areTypesRight) ? { kind: 'compile', by: 'the types' } : undefined
  }

  /**
   * The fates of those that fail a test. One that does is taken out of the source, and the others run the same
   * test again.
   */
  async #tryTogether(mutants: readonly Mutant[], tests: readonly Test[]): Promise<Map<Mutant, Fate>> {
    const fates = new Map<Mutant, Fate>()
    let [alive, left] = [mutants, tests]
    while (alive.length > 0 && left.length > 0) {
      const told = await this.#workshop.run(alive, left)
      if (told === 'no end') return new Map([...fates, ...(await this.#endless(alive, left))])
      this.#stages.took(told.tookMs)
      const { failed } = told
      if (!failed) return fates
      const found = (await this.#culprit(alive, failed)) ?? (await this.#anyCulprit(alive, failed))
      if (found) fates.set(...found)
      alive = alive.filter((mutant) => !fates.has(mutant))
      // Vitest runs one project after the other, whatever the order is.
      const ended = new Set(told.tookMs.map(({ test }) => nameOf(test)))
      // Another one may fail the same test.
      if (found) ended.delete(nameOf(failed.test))
      else ended.add(nameOf(failed.test))
      left = left.filter((test) => !ended.has(nameOf(test)))
    }
    return fates
  }

  /** A run did not end: the mutant that is the cause is searched for in halves, and its test one by one. */
  async #endless(
    mutants: readonly Mutant[],
    tests: readonly Test[],
  ): Promise<readonly (readonly [Mutant, Fate])[]> {
    const [only] = mutants
    if (only && mutants.length === 1) {
      for (const test of tests.filter((each) => this.#stages.mayFail(each, only))) {
        const fate = await this.#tryOn(only, test)
        if (fate) return [[only, fate]]
      }
      return []
    }
    const half = Math.ceil(mutants.length / 2)
    const first = await this.#tryTogether(mutants.slice(0, half), tests)
    const second = await this.#tryTogether(mutants.slice(half), tests)
    return [...first, ...second]
  }

  /**
   * One of several that fail a test together, which fails it alone too. It is searched for in halves; a half
   * that fails by chance can mislead the search.
   */
  async #culprit(mutants: readonly Mutant[], failed: Failed): Promise<readonly [Mutant, Fate] | undefined> {
    let among = this.#covering(mutants, failed)
    while (among.length > 1) {
      const half = Math.ceil(among.length / 2)
      const first = among.slice(0, half)
      among = passes(await this.#workshop.run(first, [failed.test])) ? among.slice(half) : first
    }
    const [mutant] = among
    if (!mutant) return undefined
    const fate =
      mutants.length === 1 ? await this.#blame(mutant, failed) : await this.#tryOn(mutant, failed.test)
    return fate && [mutant, fate]
  }

  /** The same, by trying each. */
  async #anyCulprit(
    mutants: readonly Mutant[],
    failed: Failed,
  ): Promise<readonly [Mutant, Fate] | undefined> {
    if (mutants.length === 1) return undefined
    for (const mutant of this.#covering(mutants, failed)) {
      const fate = await this.#tryOn(mutant, failed.test)
      if (fate) return [mutant, fate]
    }
    return undefined
  }

  #covering(mutants: readonly Mutant[], { test }: Failed): readonly Mutant[] {
    return mutants.filter((mutant) => this.#stages.mayFail(test, mutant))
  }

  /** The fate of one mutant by one test. */
  async #tryOn(mutant: Mutant, test: Test): Promise<Fate | undefined> {
    const told = await this.#workshop.run([mutant], [test])
    if (told !== 'no end') return told.failed && this.#blame(mutant, told.failed)
    // Whatever ends the process may end it without the mutant by now.
    this.#stages.passed(test, false)
    return this.#blame(mutant, { test, name: 'it did not end', isTimeout: true })
  }

  /** The fate by a test, unless the test fails by chance or without the mutant too. */
  async #blame(mutant: Mutant, { test, name, isTimeout }: Failed): Promise<Fate | undefined> {
    const mayBeChance = isTimeout || this.#stages.dependsOnTime(test)
    if (mayBeChance && passes(await this.#workshop.run([mutant], [test]))) return undefined
    if (!this.#stages.hasPassed(test)) {
      if (!passes(await this.#workshop.run([], [test]))) {
        console.error(`${test.path} fails without a mutant. It counts for nothing.`)
        return undefined
      }
      this.#stages.passed(test, true)
    }
    this.#lastKillers.set(test.project, test)
    return { kind: isTimeout ? 'time' : 'tests', by: `${test.path}: ${name}`, test }
  }
}

type Failed = NonNullable<Told['failed']>

function passes(told: Told | 'no end'): boolean {
  return told !== 'no end' && told.failed === undefined
}
