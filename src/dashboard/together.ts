import type { Held, Holding } from '../shared/shown.ts'
import { SHOWN } from './held.ts'
import { type Limit, orFault } from './limit.ts'
import { RESERVATIONS } from './reservations.ts'

/** A reservation, and its limit. */
interface ReservedIn {
  readonly limit: Limit
  readonly held: Held
}

/** Ends of one reservation are nearer to each other. */
const APART_MS = 1000

/** Says of reservations which others may be one with them. */
export type HeldTogether = (
  limit: Limit,
  holding: Pick<Holding, 'name'>,
  found: readonly Held[],
) => Promise<readonly Held[]>

/**
 * A reservation of several limits has a row in each of them. They have one name, and ends that differ by what
 * the statements of two tables or shards take. So have reservations that were made one after the other, so it
 * does not say that they are one. It reads as many of each limit as a page shows.
 */
export function heldTogether(limits: readonly Limit[], now: number): HeldTogether {
  let all: Promise<readonly ReservedIn[]> | undefined
  return async (limit, holding, found) => {
    if (holding.name !== RESERVATIONS || found.length === 0) return found
    all ??= Promise.all(limits.map((each) => reservationsIn(each, now))).then((each) => each.flat())
    const known = await all
    return found.map((held) => {
      const others = known.filter(
        (other) =>
          other.held.name === held.name &&
          Math.abs((other.held.until ?? 0) - (held.until ?? 0)) < APART_MS &&
          (other.limit !== limit || other.held.key !== held.key),
      )
      if (others.length === 0) return held
      const named = others.map((other) => `${other.held.key} in ${other.limit.name}`)
      return { ...held, about: `Also reserved: ${named.join(', ')}` }
    })
  }
}

function reservationsIn(limit: Limit, now: number): Promise<ReservedIn[]> {
  const read = async () => {
    const holding = (await limit.holdings()).find(({ name }) => name === RESERVATIONS)
    const found = (await holding?.list({ size: SHOWN, now })) ?? []
    return found.map((held) => ({ limit, held }))
  }
  return orFault(read, () => [])
}
