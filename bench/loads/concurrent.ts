import { ALL } from '../contenders/all.ts'
import { makeKeys } from '../contenders/contender.ts'
import { THIS_PACKAGE } from '../contenders/this-package.ts'
import { allAdmitted, anyOf, keyNumbers, measure } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import { type Bench, type Load, type Outcome, withDatabase } from './load.ts'

/** Callers in this process that check any of the keys, each again as soon as it has its answer. */
export const CONCURRENT: readonly Load[] = [
  {
    name: '1-caller',
    title: '1 caller',
    run: (bench) => concurrent(bench, { callers: 1, keys: 1_000, comparedBy: 'p50Ms' }),
  },
  {
    name: '64-callers-1000-keys',
    title: '64 callers, 1,000 keys',
    run: (bench) => concurrent(bench, { callers: 64, keys: 1_000 }),
  },
  {
    name: '64-callers-1-key',
    title: '64 callers, 1 key',
    run: (bench) => concurrent(bench, { callers: 64, keys: 1 }),
  },
  {
    name: '256-callers-10000-keys',
    title: '256 callers, 10,000 keys',
    run: (bench) => concurrent(bench, { callers: 256, keys: 10_000 }),
  },
]

interface Shape {
  readonly callers: number
  readonly keys: number
  readonly comparedBy?: Outcome['comparedBy']
}

function concurrent(bench: Bench, { callers, keys, comparedBy = 'perSecond' }: Shape): Promise<Outcome> {
  const { rounds, roundMs, warmUpMs } = bench.settings
  bench.progress.expect(rounds * ALL.length)
  return withDatabase(bench, async (connections) => {
    const limiters = await Promise.all(
      ALL.map(async ({ name, open }) => ({ name, limiter: await open(connections) })),
    )
    for (const { name, limiter } of limiters) {
      bench.progress.prepare(name)
      await makeKeys(limiter, keyNumbers(keys))
    }
    const entries = limiters.map(({ name, limiter: { check } }): Entry => {
      const work = { check, key: anyOf(keys), callers }
      return {
        name,
        turn: async () => {
          await measure({ ...work, ms: warmUpMs })
          return allAdmitted(await measure({ ...work, ms: roundMs }))
        },
      }
    })
    const measured = await interleave(entries, rounds, bench.progress)
    for (const { limiter } of limiters) await limiter.close()
    return { measured, baseline: THIS_PACKAGE, comparedBy }
  })
}
