import { everyone, onServers } from '../contenders/all.ts'
import { type Contender, makeKeys } from '../contenders/contender.ts'
import { THIS_PACKAGE } from '../contenders/this-package.ts'
import { anyOf, keyNumbers } from '../measure.ts'
import { admitted, interleave } from '../rounds.ts'
import { type Bench, type Figure, type Load, type Outcome, withDatabase } from './load.ts'

// Callers in this process check any of the keys. Each checks again as soon as it has its answer.

export const oneCaller: Load = {
  name: '1-caller',
  title: '1 caller',
  run: (bench) =>
    concurrent(bench, { callers: 1, keys: 1_000, who: everyone(bench.before), comparedBy: 'p50Ms' }),
}

/** Too few callers to gain from shared statements. */
export const FEW_CALLERS: readonly Load[] = [2, 4, 8, 16].map((callers) => ({
  name: `${callers}-callers`,
  title: `${callers} callers, 1,000 keys`,
  run: (bench) => concurrent(bench, { callers, keys: 1_000, who: onServers() }),
}))

export const MANY_CALLERS: readonly Load[] = [
  {
    name: '64-callers-1000-keys',
    title: '64 callers, 1,000 keys',
    run: (bench) => concurrent(bench, { callers: 64, keys: 1_000, who: everyone(bench.before) }),
  },
  {
    name: '64-callers-1-key',
    title: '64 callers, 1 key',
    run: (bench) => concurrent(bench, { callers: 64, keys: 1, who: everyone() }),
  },
  {
    name: '256-callers-10000-keys',
    title: '256 callers, 10,000 keys',
    run: (bench) => concurrent(bench, { callers: 256, keys: 10_000, who: everyone() }),
  },
]

interface Shape {
  readonly callers: number
  readonly keys: number
  readonly who: readonly Contender[]
  readonly comparedBy?: Figure
}

function concurrent(bench: Bench, shape: Shape): Promise<Outcome> {
  const { callers, keys, who, comparedBy = 'perSecond' } = shape
  const { rounds } = bench.settings
  bench.progress.expect(rounds * who.length)
  return withDatabase(bench, async (connections) => {
    const opened = await Promise.all(
      who.map(async (contender) => ({ ...contender, limiter: await contender.open(connections) })),
    )
    for (const { name, limiter } of opened) {
      bench.progress.prepare(name)
      await makeKeys(limiter, keyNumbers(keys))
    }
    const entries = opened.map(({ name, store = 'postgres', limiter: { check } }) => {
      const serverCpu = store === 'postgres' ? bench.serverCpu : undefined
      return admitted(name, { check, key: anyOf(keys), callers, serverCpu }, bench.settings)
    })
    const measured = await interleave(entries, rounds, bench.progress)
    for (const { limiter } of opened) await limiter.close()
    return { measured, baseline: THIS_PACKAGE, comparedBy }
  })
}
