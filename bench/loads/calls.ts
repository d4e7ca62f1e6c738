import { limitAll, type Ratelimit } from '../../src/index.ts'
import type { SpendRequest } from '../../src/quota/index.ts'
import { anyOf } from '../measure.ts'
import { admitted, interleave } from '../rounds.ts'
import { KEYS } from './known-rows.ts'
import type { Bench, Outcome } from './load.ts'

/** A way to call this package, or what would stand in its place. */
export interface Call {
  readonly name: string
  /** Calls for a key. Returns whether it was admitted. */
  check(key: string): Promise<boolean>
  /** Where it counts. The CPU of the Postgres server is shown only for `'postgres'`. Default: `'postgres'`. */
  readonly store?: 'postgres' | 'elsewhere'
}

/** Measures all calls in turns. The first is the one that the others are compared with. */
export async function measureCalls(bench: Bench, calls: readonly Call[], callers: number): Promise<Outcome> {
  const { rounds } = bench.settings
  const entries = calls.map(({ name, check, store = 'postgres' }) => {
    const serverCpu = store === 'postgres' ? bench.serverCpu : undefined
    return admitted(name, { check, key: anyOf(KEYS), callers, serverCpu }, bench.settings)
  })
  bench.progress.expect(rounds * entries.length)
  const measured = await interleave(entries, rounds, bench.progress)
  return { measured, baseline: calls[0]?.name ?? '', comparedBy: callers === 1 ? 'p50Ms' : 'perSecond' }
}

export const LIMIT = 'limit'

export function limitOf(ratelimit: Ratelimit): Call {
  return { name: LIMIT, check: async (key) => (await ratelimit.limit(key)).success }
}

export function limitAllOf(
  first: Ratelimit,
  second: Ratelimit,
  other: () => string = otherKey,
): Call['check'] {
  return async (key) => (await limitAll(requestsOf(first, second, key, other))).success
}

/** The second limit counts by another key, like a limit for addresses and one for users. */
export function requestsOf(
  first: Ratelimit,
  second: Ratelimit,
  key: string,
  other: () => string = otherKey,
): SpendRequest[] {
  return [
    { ratelimit: first, key },
    { ratelimit: second, key: other() },
  ]
}

export const otherKey: () => string = anyOf(KEYS)

export function callersOf(count: number): string {
  return count === 1 ? '1 caller' : `${count} callers`
}
