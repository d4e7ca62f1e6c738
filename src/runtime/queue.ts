import type { Limiter } from '../algorithms/algorithm.ts'
import type { Call, CallGroup } from './decide.ts'

/** Equal calls, in their order. */
export interface Group<C extends Call> extends CallGroup {
  calls: number
  readonly members: C[]
}

/**
 * The calls of one namespace that wait for a statement.
 *
 * Calls that come one after another for one key and equal each other become one group. Within a key, first come is first served:
 * statements under way can overtake each other, so a key that is in one waits for its answer.
 */
export class Queue<C extends Call> {
  /** The groups of each key that is in no statement; the keys in the order of their turns. */
  readonly #ready = new Map<string, Group<C>[]>()
  /** The groups that wait behind each key that is in a statement. */
  readonly #behind = new Map<string, Group<C>[]>()
  #size = 0

  /** How many calls wait. */
  get size(): number {
    return this.#size
  }

  /** How many keys could go now. */
  get readyKeys(): number {
    return this.#ready.size
  }

  add(call: C): void {
    const { key } = call
    const groups = this.#behind.get(key) ?? this.#ready.get(key) ?? []
    const last = groups.at(-1)
    if (last && isEqual(last, call)) {
      last.calls++
      last.members.push(call)
    } else groups.push({ ...call, calls: 1, members: [call] })
    if (!this.#behind.has(key)) this.#ready.set(key, groups)
    this.#size++
  }

  /** Takes what one statement can decide: the first group of each key, of one algorithm. They are in a statement until `done`. */
  take(mostKeys: number): Group<C>[] {
    const taken: Group<C>[] = []
    for (const [key, groups] of this.#ready) {
      if (taken.length === mostKeys) break
      const [first] = groups
      const algorithm = taken[0]?.limiter.algorithm
      if (!first || (algorithm && first.limiter.algorithm !== algorithm)) continue
      groups.shift()
      taken.push(first)
      this.#size -= first.calls
      this.#ready.delete(key)
      this.#behind.set(key, groups)
    }
    return taken
  }

  /** The groups have their answers; what waits behind them is ready. */
  done(taken: readonly Group<C>[]): void {
    for (const { key } of taken) {
      const groups = this.#behind.get(key)
      this.#behind.delete(key)
      if (groups && groups.length > 0) this.#ready.set(key, groups)
    }
  }
}

/** Of one key: whether both take the same from the same. */
function isEqual(one: Call, other: Call): boolean {
  return (
    one.rate === other.rate &&
    one.force === other.force &&
    one.paidFrom === other.paidFrom &&
    sameLimiter(one.limiter, other.limiter)
  )
}

export function sameLimiter(one: Limiter, other: Limiter): boolean {
  return (
    one === other ||
    (one.algorithm === other.algorithm &&
      one.periodAt === other.periodAt &&
      Object.entries(one.params).every(([name, value]) => other.params[name] === value))
  )
}
