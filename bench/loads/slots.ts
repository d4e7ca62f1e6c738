import { Child, scriptNextTo } from '../child.ts'
import { allAdmitted, type Round } from '../measure.ts'
import { interleave } from '../rounds.ts'
import { type Bench, type Load, type Outcome, withDatabase } from './load.ts'
import { inSum } from './processes.ts'
import type { Job, Worked } from './slots-child.ts'

const CHILD = scriptNextTo(import.meta.url, 'slots-child')

interface Shape {
  readonly processes: number
  /** In each process. */
  readonly workers: number
  readonly slots: number
}

const IN_ONE: readonly Shape[] = [
  { processes: 1, workers: 5, slots: 5 },
  { processes: 1, workers: 6, slots: 5 },
  { processes: 1, workers: 24, slots: 5 },
  { processes: 1, workers: 64, slots: 20 },
  { processes: 1, workers: 2, slots: 1 },
]

const IN_FOUR: readonly Shape[] = [
  { processes: 4, workers: 6, slots: 5 },
  { processes: 4, workers: 16, slots: 20 },
  { processes: 4, workers: 2, slots: 1 },
]

/** How large a part of the time slots are in use while workers wait for them, and how long those wait. */
export const SLOTS: readonly Load[] = [
  {
    name: 'slots-1-process',
    title: 'work of 15 ms under a lease, 1 process',
    run: (bench) => work(bench, IN_ONE),
  },
  {
    name: 'slots-4-processes',
    title: 'work of 15 ms under a lease, 4 processes',
    run: (bench) => work(bench, IN_FOUR),
  },
]

/** The share of the time in which a slot is in use. */
export const BUSY: { readonly inOne: readonly string[]; readonly inFour: readonly string[] } = {
  inOne: IN_ONE.map(busy),
  inFour: IN_FOUR.map(busy),
}

function named({ workers, slots }: Shape): string {
  return `${workers} workers on ${slots} slots`
}

function busy(shape: Shape): string {
  return `busy, ${named(shape)}, %`
}

function work(bench: Bench, shapes: readonly Shape[]): Promise<Outcome> {
  return withDatabase(bench, async (_connections, url) => {
    const { rounds, roundMs, warmUpMs } = bench.settings
    const most = Math.max(...shapes.map(({ processes }) => processes))
    const children = Array.from({ length: most }, () => new Child(CHILD))
    const shares = new Map<string, number[]>(shapes.map((shape) => [busy(shape), []]))
    const run = async (shape: Shape, ms: number): Promise<Round> => {
      const { processes, workers, slots } = shape
      const job: Job = { url, key: named(shape), slots, workers, ms }
      const begun = performance.now()
      const worked = await Promise.all(
        children.slice(0, processes).map((child) => child.ask<Worked>({ ...job })),
      )
      const busyMs = worked.reduce((sum, each) => sum + each.busyMs, 0)
      shares.get(busy(shape))?.push((100 * busyMs) / slots / (performance.now() - begun))
      return allAdmitted(inSum(worked))
    }
    const entries = shapes.map((shape) => ({
      name: named(shape),
      turn: async () => {
        await run(shape, warmUpMs)
        shares.get(busy(shape))?.pop()
        return run(shape, roundMs)
      },
    }))
    try {
      bench.progress.expect(rounds * entries.length)
      const measured = await interleave(entries, rounds, bench.progress)
      const facts = Object.fromEntries(
        [...shares].map(([name, each]) => [name, Math.round(Math.min(...each))]),
      )
      return { measured, facts }
    } finally {
      for (const child of children) child.end()
    }
  })
}
