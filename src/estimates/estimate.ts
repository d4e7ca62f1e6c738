import type { LimiterCall } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { OnceOptions } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Naming, Unnamed } from './options.ts'

// A call that charges an estimate.

/**
 * The call that charges its rate as an estimate.
 *
 * @throws RatelimitError `INVALID_RATE`
 */
export function estimateOf<Own extends LimiterCall>(each: Own): Own {
  const { call } = each
  if (call.rate < 0) throw new RatelimitError('INVALID_RATE', 'The rate of a reservation must be 0 or more.')
  return { ...each, call: { ...call, reserved: call.rate } }
}

/**
 * The name of an estimate. Undefined if it has none.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function namingOf({ id, expires, once }: OnceOptions & (Naming | Unnamed)): Naming | undefined {
  checkOption(
    id !== undefined || expires === undefined,
    'expires needs an id: the reservation then has a name.',
  )
  if (id === undefined) return undefined
  checkOption(once === undefined, 'id cannot be combined with once. A name is charged once anyway.')
  return { id, expires }
}
