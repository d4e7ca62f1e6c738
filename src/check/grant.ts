import type { Database } from '../database/database.ts'
import { RatelimitError } from '../errors.ts'
import type { Call } from '../runtime/call.ts'
import { checkOption, isBalance } from '../validate.ts'
import { afterCalls, usageOf } from './answer.ts'
import type { Checker } from './checker.ts'
import type { Usage } from './results.ts'

/** Adds the call's rate to a balance. During an outage it always throws; `onError` does not apply. */
export async function grant(checker: Checker, call: Call, tx: Database | undefined): Promise<Usage> {
  checkOption(isBalance(call.limiter), 'grant needs a limiter made by Ratelimit.balance.')
  if (call.rate <= 0)
    throw new RatelimitError('INVALID_RATE', 'The granted amount must be a whole number above 0.')
  const outcome = await checker.decide({ ...call, purpose: 'grant' }, tx)
  return usageOf(call.limiter, afterCalls(outcome, outcome.place + 1))
}
