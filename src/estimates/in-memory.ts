import type { Answered } from '../kernel/answers/answer.ts'
import type { Database } from '../kernel/database/database.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { chargedIn } from './charged-in.ts'
import { type Settle, settlingWith } from './costs.ts'
import { SettledOnce } from './once.ts'
import { settle } from './settle.ts'
import { chargedBy } from './settlement.ts'

/**
 * How estimates are settled that calls have charged, by their answers.
 *
 * @param tx The transaction in which they were charged.
 */
export async function inMemory(
  calls: readonly LimiterCall[],
  answered: readonly Answered[],
  tx: Database | undefined,
  isReserved = true,
): Promise<Settle> {
  // All have the same database. Otherwise nothing would have been reserved.
  const [{ checker }] = calls as readonly [LimiterCall]
  const once = new SettledOnce(checker, await chargedIn(checker, tx))
  // Most costs of `spend` are never settled, so this is worked out for those that are.
  const charged = () => calls.map((each, place) => chargedBy(each, answered[place] as Answered, isReserved))
  return settlingWith(calls, (settling, at) => once.run(at, () => settle(charged(), settling, at)))
}

/** What a call has charged whose id was used before: nothing. */
export const OF_ANOTHER_CALL: Settle = async () => {
  throw new RatelimitError(
    'ALREADY_SETTLED',
    'The id was used before, so this call has charged nothing. The call that was charged settles its estimate.',
  )
}
