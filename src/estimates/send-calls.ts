import { type Answered, grantedIn, letPass } from '../kernel/answers/answer.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import type { Funds } from '../kernel/engine/funds.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { answersIn } from '../kernel/lists/limit-all.ts'
import { neededBy } from '../kernel/store/call.ts'
import { isPaidByFunds, type PaidByFunds } from './funds.ts'
import { ofEach, type Payer, plainCalls, type SentPayers, type SentWith } from './send-payers.ts'
import { withFunds } from './with-funds.ts'

/** Charges all calls of a list, or none. Some of them are paid by funds. */
export const chargeAll: Funds['chargeAll'] = async (calls, tx, ids) =>
  (await sendCalls(calls, tx, () => ({ ids }))).answered

/** How calls were sent, and their answers. */
interface SentCalls {
  readonly sent: SentPayers
  readonly answered: Answered[]
}

/** Sends calls some of which may have rows that only a read can find. During an outage it throws. */
export function sendCalls(
  calls: readonly LimiterCall[],
  tx: At,
  sentWithOf: (payers: readonly Payer[]) => SentWith,
): Promise<SentCalls> {
  if (!calls.some(isPaidByFunds)) return sendIn(calls, tx, sentWithOf)
  const checkers = calls.map(({ checker }) => checker)
  return withinTimeout(checkers, tx, (at) => sendIn(calls, at, sentWithOf))
}

async function sendIn(
  calls: readonly LimiterCall[],
  at: At,
  sentWithOf: (payers: readonly Payer[]) => SentWith,
): Promise<SentCalls> {
  const find = ({ funds, call, force }: PaidByFunds) => {
    const as = call.reserved > 0 ? 'reserve' : undefined
    return funds.take({ rate: call.rate, least: neededBy(call), lacking: force ? 'owed' : 'denied', as }, at)
  }
  const sent = await withFunds(calls, find, at, sentWithOf)
  const { payers } = sent
  const others = answersIn({ ...sent.asked, calls: plainCalls(payers) }, sent.decisions)
  const answered = ofEach(payers, others, (purse, payer) =>
    fundedAnswer(payer.call, purse.answer(sent.decisionsOf(payer), sent.status)),
  )
  return { sent, answered }
}

/** The answer to a call that funds pay. */
function fundedAnswer({ checker, call }: LimiterCall, { answer, ...more }: Answered): Answered {
  if (answer.success) return { ...more, answer: { ...answer, ...grantedIn(call, more.paid.rate) } }
  return { ...more, answer: checker.terms.reporting.dryRun ? letPass(answer, call) : answer }
}
