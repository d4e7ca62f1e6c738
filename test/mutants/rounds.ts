import { Coverage } from './coverage.ts'
import type { Journal } from './journal.ts'
import { describe, type Mutant } from './mutants.ts'
import { Stages, testsOnServer } from './stages.ts'
import { type Fate, Trial } from './trial.ts'
import { SharedServer, Workshop } from './workshop.ts'

/** They share one run of the tests. With more of them, it takes more runs to find the one that fails a test. */
const MAX_TOGETHER = 14

/**
 * The fates of the mutants, by so many trials at a time. In the first round each has to get past the best of
 * the tests that execute its line. In the second round those that did are tried on all others that do.
 */
export async function tryAll(
  mutants: readonly Mutant[],
  journal: Journal,
  workers: number,
): Promise<ReadonlyMap<Mutant, Fate>> {
  const server = new SharedServer()
  try {
    const coverage = await Coverage.of(testsOnServer(), await server.url(), workers)
    return await tryOn(server, new Stages(coverage), mutants, journal, workers)
  } finally {
    await server.stop()
  }
}

async function tryOn(
  server: SharedServer,
  stages: Stages,
  mutants: readonly Mutant[],
  journal: Journal,
  workers: number,
): Promise<ReadonlyMap<Mutant, Fate>> {
  const startedAt = performance.now()
  const fates = new Map<Mutant, Fate>()
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
  await withTrials(server, stages, workers, async (trials) => {
    const isOpen = (mutant: Mutant) => !fates.has(mutant)
    await shareOut(trials, mutants.filter(isOpen), async (trial, mutant) => {
      const past = journal.pastOf(mutant)
      if (past) return stages.gotPast(mutant, past)
      const found = await trial.near(mutant)
      if ('kind' in found) tell(mutant, found)
      else journal.add(mutant, { past: found })
    })
    const rest = mutants.filter(isOpen)
    console.log(`${rest.length} got past the tests that are near`)
    await shareOut(trials, inGroups(rest), async (trial, group) => {
      for (const [mutant, fate] of await trial.far(group)) tell(mutant, fate)
    })
  })
  return fates
}

async function withTrials(
  server: SharedServer,
  stages: Stages,
  workers: number,
  work: (trials: readonly Trial[]) => Promise<void>,
): Promise<void> {
  const workshops: Workshop[] = []
  try {
    for (let i = 0; i < workers; i++) workshops.push(await Workshop.open(server))
    await work(workshops.map((workshop) => new Trial(workshop, stages)))
  } finally {
    await Promise.all(workshops.map((workshop) => workshop.close()))
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
