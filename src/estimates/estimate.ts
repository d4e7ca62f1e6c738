import type { Answered } from '../kernel/answers/answer.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { OnceOptions } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { inMemory, OF_ANOTHER_CALL } from './in-memory.ts'
import type { ChargedEstimates } from './named.ts'
import type { Naming, ReserveAllOptions, Unnamed } from './options.ts'

// Calls that charge estimates.

const naming = /* @__PURE__ */ onFirstUse(() => import('./named.ts'))

/**
 * Charges the rates of the calls as estimates, all or none, and under a name if the options have one.
 *
 * @param charge Charges estimates without a name.
 */
export async function chargeEstimates(
  calls: readonly LimiterCall[],
  options: ReserveAllOptions,
  charge: (estimates: readonly LimiterCall[]) => Promise<readonly Answered[]>,
): Promise<ChargedEstimates> {
  const estimates = calls.map(estimateOf)
  const name = namingOf(options)
  if (name) return (await naming()).chargeNamed(estimates, name, options.tx)
  const answered = await charge(estimates)
  const isCharged = answered.every(({ answer }) => answer.success && !answer.repeated)
  return { answered, settle: isCharged ? await inMemory(estimates, answered, options.tx) : OF_ANOTHER_CALL }
}

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
