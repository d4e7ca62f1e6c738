import { Coverage } from './coverage.ts'
import type { Killers } from './killers.ts'
import { describe, type Mutant } from './mutants.ts'
import { Stages, testsOnServer } from './stages.ts'
import { type Fate, Trial } from './trial.ts'
import { SharedServer, Workshop } from './workshop.ts'

/** They share one run of the tests. With more of them, it takes more runs to find the one that fails a test. */
const MAX_TOGETHER = 14

/** What to try: some of all mutants. */
export interface Trying {
  readonly mutants: readonly Mutant[]
  readonly all: readonly Mutant[]
  readonly killers: Killers
  /** How many at a time. */
  readonly workers: number
}

/**
 * The fates of mutants, in three rounds. First comes what killed a mutant before, then the best of the tests
 * that execute its lines, then all others that do.
 */
export async function tryAll({ mutants, all, killers, workers }: Trying): Promise<ReadonlyMap<Mutant, Fate>> {
  const startedAt = performance.now()
  const fates = new Map<Mutant, Fate>()
  const stages = new Stages()
  for (const mutant of all) stages.learn(mutant, killers.of(mutant))
  const tell = (mutant: Mutant, fate: Fate) => {
    fates.set(mutant, fate)
    killers.note(mutant, fate)
    const minutes = ((performance.now() - startedAt) / 60_000).toFixed(1)
    console.log(`${minutes} min, ${fates.size}/${mutants.length} ${fate.kind}: ${describe(mutant)}`)
    if (fate.by) console.log(`    by ${fate.by}`)
  }
  const tellNew = (mutant: Mutant, fate: Fate) => {
    tell(mutant, fate)
    stages.learn(mutant, fate.test)
  }
  const open = () => mutants.filter((mutant) => !fates.has(mutant))
  const server = new SharedServer()
  try {
    await withTrials(server, stages, workers, async (trials) => {
      await shareOut(trials, mutants, async (trial, mutant) => {
        const fate = await trial.by(mutant, killers.of(mutant))
        if (fate) tell(mutant, fate)
      })
      if (open().length === 0) return
      console.log(`${open().length} are new, or got past what killed them before`)
      stages.know(await Coverage.of(testsOnServer(), await server.url(), workers))
      await shareOut(trials, open(), async (trial, mutant) => {
        const fate = await trial.near(mutant)
        if (fate) tellNew(mutant, fate)
      })
      console.log(`${open().length} got past the tests that are near`)
      await shareOut(trials, inGroups(open()), async (trial, group) => {
        for (const [mutant, fate] of await trial.far(group)) tellNew(mutant, fate)
      })
    })
  } finally {
    await server.stop()
  }
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
    const trials = workshops.map((workshop) => new Trial(workshop, stages))
    await work(trials)
    for (const trial of trials) await trial.checkItself()
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
  const ended = await Promise.allSettled(
    trials.map(async (trial) => {
      for (const one of queue) await work(trial, one)
    }),
  )
  // Only now does nobody use the workshops any more.
  for (const each of ended) if (each.status === 'rejected') throw each.reason
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
