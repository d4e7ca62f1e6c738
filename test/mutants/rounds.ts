import type { Journal } from './journal.ts'
import { describe, type Mutant } from './mutants.ts'
import { Stages } from './stages.ts'
import type { Test } from './test.ts'
import { type Fate, Trial } from './trial.ts'
import { SharedServer, Workshop } from './workshop.ts'

/** If more are tried together, one is likely to fail each test. */
const MAX_TOGETHER = 6

/**
 * The fates of the mutants, by so many trials at a time. In the first round each has to get past the tests that
 * are near and quick, in the second past the others that are near. Those that did are tried on all other tests.
 */
export async function tryAll(
  mutants: readonly Mutant[],
  journal: Journal,
  workers: number,
): Promise<ReadonlyMap<Mutant, Fate>> {
  const startedAt = performance.now()
  const fates = new Map<Mutant, Fate>()
  const stages = new Stages()
  for (const mutant of mutants) {
    const known = journal.fateOf(mutant)
    if (!known) continue
    fates.set(mutant, known)
    stages.learn(mutant, known.test)
  }
  const tell = (mutant: Mutant, fate: Fate) => {
    fates.set(mutant, fate)
    stages.learn(mutant, fate.test)
    journal.add(mutant, { fate })
    const minutes = ((performance.now() - startedAt) / 60_000).toFixed(1)
    console.log(`${minutes} min, ${fates.size}/${mutants.length} ${fate.kind}: ${describe(mutant)}`)
    if (fate.by) console.log(`    by ${fate.by}`)
  }
  await withTrials(stages, workers, async (trials) => {
    for (const mutant of mutants) stages.gotPast(mutant, journal.pastOf(mutant) ?? [])
    const isOpen = (mutant: Mutant) => !fates.has(mutant)
    const round = async (some: readonly Mutant[], testsOf: (mutant: Mutant) => readonly Test[]) => {
      await shareOut(trials, some, async (trial, mutant) => {
        const fate = await trial.alone(mutant, testsOf(mutant))
        if (fate) tell(mutant, fate)
        else journal.add(mutant, { past: stages.pastOf(mutant) })
      })
      console.log(`${some.filter(isOpen).length} of ${some.length} got past these tests`)
    }
    const isNew = (mutant: Mutant) => isOpen(mutant) && stages.pastOf(mutant).length === 0
    await round(mutants.filter(isNew), (mutant) => stages.near(mutant))
    await round(mutants.filter(isOpen), (mutant) => stages.ofArea(mutant))
    await shareOut(trials, inGroups(mutants.filter(isOpen)), async (trial, group) => {
      for (const [mutant, fate] of await trial.far(group)) tell(mutant, fate)
    })
  })
  return fates
}

async function withTrials(
  stages: Stages,
  workers: number,
  work: (trials: readonly Trial[]) => Promise<void>,
): Promise<void> {
  const server = new SharedServer()
  const workshops: Workshop[] = []
  try {
    for (let i = 0; i < workers; i++) workshops.push(await Workshop.open(server))
    await work(workshops.map((workshop) => new Trial(workshop, stages)))
  } finally {
    await Promise.all(workshops.map((workshop) => workshop.close()))
    await server.stop()
  }
}

async function shareOut<T>(
  trials: readonly Trial[],
  all: readonly T[],
  work: (trial: Trial, one: T) => Promise<void>,
): Promise<void> {
  const queue = all.values()
  await Promise.all(
    trials.map(async (trial) => {
      for (const one of queue) await work(trial, one)
    }),
  )
}

/** Mutants of different files, a few in each group. */
function inGroups(mutants: readonly Mutant[]): readonly (readonly Mutant[])[] {
  const groups: Mutant[][] = []
  for (const mutant of mutants) {
    const fits = (group: readonly Mutant[]) =>
      group.length < MAX_TOGETHER && group.every(({ file }) => file !== mutant.file)
    const group = groups.find(fits)
    if (group) group.push(mutant)
    else groups.push([mutant])
  }
  return groups
}
