import { admitted, interleave } from '../rounds.ts'
import type { Bench, Outcome } from './load.ts'

/** A way to call this package, or what would stand in its place. */
export interface Call {
  readonly name: string
  /** Calls for a key. Returns whether it was admitted. */
  check(key: string): Promise<boolean>
  /** Where it counts. The CPU of the Postgres server is shown only for `'postgres'`. Default: `'postgres'`. */
  readonly store?: 'postgres' | 'elsewhere'
}

interface Shape {
  readonly callers: number
  key(): string
}

/** Measures all calls in turns. The first is the one that the others are compared with. */
export async function measureCalls(bench: Bench, calls: readonly Call[], shape: Shape): Promise<Outcome> {
  const { rounds } = bench.settings
  const entries = calls.map(({ name, check, store = 'postgres' }) => {
    const serverCpu = store === 'postgres' ? bench.serverCpu : undefined
    return admitted(name, { ...shape, check, serverCpu }, bench.settings)
  })
  bench.progress.expect(rounds * entries.length)
  const measured = await interleave(entries, rounds, bench.progress)
  const comparedBy = shape.callers === 1 ? 'p50Ms' : 'perSecond'
  return { measured, baseline: calls[0]?.name ?? '', comparedBy }
}
