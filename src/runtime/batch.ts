import type { AnyAlgorithm, Limiter } from '../algorithms/algorithm.ts'
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
 * Takes from the queue of one namespace what one statement can decide.
 *
 * Calls that equal each other become one group; a key has one group, and all share the algorithm of the first. A call that
 * does not fit stays behind, and so do later ones of its key: within a key, first come is first served. Statements under way
 * can overtake each other, and one that waits for a row holds its connection: a key that is `underWay` waits for its answer.
 */
export function takeBatch<C extends Call>(
  waiting: readonly C[],
  underWay: readonly CallGroup[],
  mostKeys: number,
): Batch<C> {
  const groups = new Map<string, Group<C>>()
  const busy = new Set(underWay.map((group) => group.key))
  const passedOver = new Set<string>()
  const rest: C[] = []
  let algorithm: AnyAlgorithm | undefined
  for (const call of waiting) {
    const { namespace, key, rate, limiter } = call
    const group = groups.get(key)
    const mayGo = !passedOver.has(key) && !busy.has(key) && (!group || isEqual(group, call))
    const hasRoom =
      group || (groups.size < mostKeys && limiter.algorithm === (algorithm ?? limiter.algorithm))
    if (!mayGo || !hasRoom) {
      passedOver.add(key)
      rest.push(call)
    } else if (group) {
      group.calls++
      group.members.push(call)
    } else {
      algorithm = limiter.algorithm
      groups.set(key, { namespace, key, rate, limiter, calls: 1, members: [call] })
    }
  }
  return { groups: [...groups.values()], rest }
}

/** Of one key: whether both take the same from the same. */
function isEqual(one: Call, other: Call): boolean {
  return one.rate === other.rate && (one.limiter === other.limiter || sameLimiter(one.limiter, other.limiter))
}

export function sameLimiter(one: Limiter, other: Limiter): boolean {
  return (
    one.algorithm === other.algorithm &&
    Object.entries(one.params).every(([name, value]) => other.params[name] === value)
  )
}
