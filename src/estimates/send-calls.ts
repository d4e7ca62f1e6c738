import { type Answered, grantedIn, letPass } from '../kernel/answers/answer.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import type { Funds } from '../kernel/engine/funds.ts'
import { answersIn } from '../kernel/lists/answers.ts'
import { blockedUntil } from '../kernel/lists/combined-calls.ts'
import { neededBy } from '../kernel/store/call.ts'
import type { PaidByFunds } from './funds.ts'
import type { SentPayers, SentWith } from './send-payers.ts'
import { withFunds } from './with-funds.ts'

/** Charges all calls of a list, or none. Some of them are paid by funds. */
export const chargeAll: Funds['chargeAll'] = async (calls, tx, ids) =>
  (await sendCalls(calls, tx, { ids })).answered

/** How calls were sent, and their answers. */
interface SentCalls {
  readonly sent: SentPayers
  readonly answered: Answered[]
}

/** Sends calls some of which may have rows that only a read can find. During an outage it throws. */
export async function sendCalls(
  calls: readonly LimiterCall[],
  tx: At,
  sentWith: SentWith,
): Promise<SentCalls> {
  const sent = await withFunds(calls, takeFrom, tx, sentWith)
  const { payers, asked, found, status } = sent
  const plain = payers.flatMap(({ call, purse }) => (purse ? [] : [call]))
  const others = answersIn({ ...asked, calls: plain }, found).values()
  const answered = payers.map(({ call, purse, decisions }) =>
    purse
      ? fundedAnswer(call, purse.answer(decisions, status, blockedUntil(asked, found, call)))
      : (others.next().value as Answered),
  )
  return { sent, answered }
}

function takeFrom({ funds, call }: PaidByFunds, at: At) {
  const lacking = call.purpose === 'adjust' ? 'owed' : 'denied'
  const as = call.reserved > 0 ? 'reserve' : undefined
  return funds.take({ rate: call.rate, least: neededBy(call), lacking, as }, at)
}

/** The answer to a call that funds pay. */
function fundedAnswer({ checker, call }: LimiterCall, { answer, ...more }: Answered): Answered {
  if (answer.success) return { ...more, answer: { ...answer, ...grantedIn(call, more.paid.rate) } }
  return { ...more, answer: checker.terms.reporting.dryRun ? letPass(answer, call) : answer }
}
