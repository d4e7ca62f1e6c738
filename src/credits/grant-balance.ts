import { usageOf } from '../kernel/answers/answer.ts'
import { afterCalls } from '../kernel/answers/outcome.ts'
import type { Usage } from '../kernel/answers/results.ts'
import type { Database } from '../kernel/database/database.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { askedOf, isRepeated } from '../kernel/lists/combined-calls.ts'
import { found } from '../kernel/lists/enough.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { takeTogether } from '../kernel/lists/together.ts'
import type { Once } from '../kernel/options/calls.ts'
import { checkOption, isPrepaid } from '../kernel/options/validate.ts'
import type { Call } from '../kernel/store/call.ts'
import type { GrantResult } from './grants.ts'

// Grants of undated credits. During an outage they always throw; `onError` does not apply.

/** Adds the call's rate. */
export async function grant(checker: Checker, call: Call, tx: Database | undefined): Promise<Usage> {
  const outcome = await checker.decide(grantOf(call), tx)
  return usageOf(call.limiter, afterCalls(outcome, outcome.place + 1))
}

/** Adds the call's rate if the id was not used before. */
export async function grantOnce(
  { checker, call }: LimiterCall,
  once: Once,
  tx: Database | undefined,
): Promise<GrantResult> {
  const granting = { checker, call: grantOf(call) }
  const asked = askedOf([granting], tx, [await idCall(once, [granting])])
  const row = found(asked.rowOf, granting)
  const decisions = await takeTogether(asked)
  const decision = found(decisions.looks, row)
  if (isRepeated(asked, decisions)) return { ...usageOf(call.limiter, decision), repeated: true }
  return usageOf(call.limiter, afterCalls({ call: row, decision }, 1))
}

/**
 * The call that adds the rate.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 */
function grantOf(call: Call): Call {
  checkOption(isPrepaid(call.limiter), 'Only credits can be granted.')
  if (call.rate <= 0)
    throw new RatelimitError('INVALID_RATE', 'The granted amount must be a whole number above 0.')
  return { ...call, purpose: 'add' }
}
