import type { Limiter } from '../algorithms/algorithm.ts'
import { CLOSING, type Opened, openedIn } from '../algorithms/estimate.ts'
import { windowEndOf } from '../algorithms/limiter.ts'
import type { At } from '../check/bounds.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import { RatelimitError } from '../errors.ts'
import { callOf } from '../options/validate.ts'
import type { Decision } from '../runtime/call.ts'
import type { ChargedIn } from '../several/charged-in.ts'
import { found } from '../several/enough.ts'
import { namesOf } from '../several/names.ts'
import { type Asked, askedOf, takeTogether } from '../several/together.ts'
import type { Estimate } from './settlement.ts'

/** The estimate of one limit under a name. */
export interface Part {
  readonly checker: Checker
  readonly key: string
  /** The key of its row. */
  readonly row: string
  /** The limit under which it is settled. */
  readonly limiter: Limiter
  /** Whether the caller gave the limit. Otherwise it may be outdated, and must not replace the row's state. */
  readonly isPresent: boolean
  /** Whether the limiter is known to be the plan of the reservation, or the present one. */
  readonly hasPlan: boolean
  /** The plan that was charged, if it is known. */
  readonly charged?: Limiter
  /** Where it was charged, if this process knows that. */
  readonly chargedIn?: ChargedIn
}

/** The estimates of calls under a name, and the calls that make their rows. */
export interface Opening {
  readonly parts: readonly Part[]
  readonly openings: readonly LimiterCall[]
}

/**
 * Looks at the estimates. One statement sees those of a name as they were at one time.
 *
 * @throws RatelimitError `NOT_RESERVED`
 */
export async function look(parts: readonly Part[], tx: At): Promise<Opened[]> {
  const calls = lookingAt(parts)
  const [only, ...more] = calls
  const states =
    only && more.length === 0
      ? [(await only.checker.decide(only.call, tx)).decision]
      : await looksAt(askedOf(calls, tx), calls)
  return states.map(({ state }) => {
    const seen = openedIn(state)
    if (seen) return seen
    throw new RatelimitError(
      'NOT_RESERVED',
      'There is no reservation with this key and id: it was denied or rolled back, or it was settled long ago.',
    )
  })
}

/** The calls that look at the estimates. In a list, they give its entries the id. */
export function lookingAt(parts: readonly Part[]): LimiterCall[] {
  return parts.map(({ checker, row }) => {
    const { closer } = namesOf(checker)
    return { checker: closer, call: callOf(closer.config.namespace.prefix, CLOSING, row, { rate: 0 }) }
  })
}

async function looksAt(asked: Asked, calls: readonly LimiterCall[]): Promise<Decision[]> {
  const { looks } = await takeTogether(asked)
  return calls.map((call) => found(looks, found(asked.rowOf, call)))
}

/** What is known of the estimate that is settled. */
export function estimateIn({ key, limiter, charged }: Part, seen: Opened): Estimate {
  const { rate, windowStart, usedBefore, refundableUntil, passed, columns } = seen
  return {
    key,
    paid: { rate, windowStart, usedBefore },
    refundableUntil,
    windowEnd: seen.windowEnd ?? windowEndOf(charged ?? limiter, seen),
    how: passed ? 'passed' : 'charged',
    limit: limiter.limit,
    layout: columns.join(),
  }
}
