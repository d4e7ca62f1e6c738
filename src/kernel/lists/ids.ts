import { onceFor } from '../base/once.ts'
import { parseDuration } from '../duration.ts'
import type { Checker, LimiterCall } from '../engine/checker.ts'
import { companionChecker } from '../engine/companion.ts'
import { fixedWindowOf } from '../limits/fixed-window.ts'
import type { Once } from '../options/calls.ts'
import { callOf, checkOption, isStorable } from '../options/validate.ts'
import { ID_PREFIX } from '../sql/own-prefixes.ts'

// The ids of `once`. An id is a row: a fixed window of one token, which is charged together with the others.

/** The checker of a limiter's ids. Their rows have a prefix of their own, in the same table. */
const checkerOfIds = onceFor((owner: Checker) =>
  companionChecker(owner, { prefix: ID_PREFIX + owner.rows.namespace.prefix, isUsuallyNew: true }),
)

/**
 * The call that uses up the id of calls: an id of the first one's limiter. Undefined if they have none. If all
 * of them only look, it looks whether the id is free.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 */
export async function idCall(
  once: Once | undefined,
  calls: readonly LimiterCall[],
): Promise<LimiterCall | undefined> {
  const [first] = calls
  if (once === undefined || !first) return undefined
  const { id, for: length } = once
  const limiter = fixedWindowOf(1, parseDuration(length, 'The time of once'))
  const checker = checkerOfIds(first.checker)
  const { prefix } = checker.rows.namespace
  const { hash } = checker.terms
  const isText = typeof id === 'string' && id !== ''
  const stored = isText && hash ? await hash(id) : id
  checkOption(
    isStorable(stored, prefix),
    'The id of once must be a string that Postgres can store. Prefix and id may have about 1,000 bytes together.',
  )
  const call = callOf(prefix, limiter, stored, {})
  return {
    checker,
    call: calls.every(isPlainLook) ? { ...call, rate: 0, purpose: 'look', atLeast: 1 } : call,
  }
}

/** A refund to a window becomes a look if the limit has no windows, and still uses up the id. */
function isPlainLook({ call }: LimiterCall): boolean {
  return call.rate === 0 && call.paidWindowStart === null
}
