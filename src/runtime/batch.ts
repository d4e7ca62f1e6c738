import type { Limiter } from '../algorithms/algorithm.ts'
import type { Call, CallGroup } from './decide.ts'

/** Equal calls, in their order. */
export interface Group<C extends Call> extends CallGroup {
  calls: number
  readonly members: C[]
}

/** What one statement decides, and what is left for the next. */
export interface Batch<C extends Call> {
  readonly groups: readonly Group<C>[]
  readonly rest: C[]
}

/**
 * Takes from the queue what one statement can decide.
 *
 * Calls that equal each other become one group; a key has one group, and all share the algorithm of the first. A call that
 * does not fit stays behind, and so do later ones of its key: within a key, first come is first served.
 */
export function takeBatch<C extends Call>(waiting: readonly C[], mostKeys: number): Batch<C> {
  const algorithm = waiting[0]?.limiter.algorithm
  const groups = new Map<string, Group<C>>()
  const passedOver = new Set<string>()
  const rest: C[] = []
  for (const call of waiting) {
    const { key, rate, limiter } = call
    const group = groups.get(key)
    const fits = group ? isEqual(group, call) : limiter.algorithm === algorithm && groups.size < mostKeys
    if (!fits || passedOver.has(key)) {
      passedOver.add(key)
      rest.push(call)
    } else if (group) {
      group.calls++
      group.members.push(call)
    } else groups.set(key, { key, rate, limiter, calls: 1, members: [call] })
  }
  return { groups: [...groups.values()], rest }
}

function isEqual(one: Call, other: Call): boolean {
  return one.rate === other.rate && (one.limiter === other.limiter || sameLimiter(one.limiter, other.limiter))
}

function sameLimiter(one: Limiter, other: Limiter): boolean {
  return (
    one.algorithm === other.algorithm &&
    Object.entries(one.params).every(([name, value]) => other.params[name] === value)
  )
}
