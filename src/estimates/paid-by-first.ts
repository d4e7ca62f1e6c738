import { lru } from 'tiny-lru'
import { afterCalls, isRequest } from '../kernel/answers/outcome.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { CombinedCalls } from '../kernel/lists/combined-calls.ts'
import type { Decision } from '../kernel/store/call.ts'
import type { Payer, SentPayers, SentWith } from './send-payers.ts'

/** Rows that had too little in the last minute. A call of their own would mostly be denied again. */
const lacking = /* @__PURE__ */ lru<true>(10_000, 60_000)

/**
 * Lets the first limit pay a shared rate by a call of its own, if only funds would pay after it. Most have
 * enough, and then the funds need no lock. Undefined if it has not.
 *
 * Also undefined if other rows have to be charged or looked at together with it, and in a caller's transaction,
 * where a denial would keep the lock.
 */
export async function paidByFirst(
  payers: readonly Payer[],
  { ids, notes, shared }: SentWith,
  asked: CombinedCalls,
  tx: At,
): Promise<SentPayers | undefined> {
  const [first, ...others] = payers as readonly [Payer, ...Payer[]]
  const { call, checker } = first.call
  const row = asked.rowOf.get(first.call)
  const isAlone = shared && !ids && !notes && others.every(({ purse }) => purse)
  if (!isAlone || !row || !isRequest(call) || call.purpose !== 'take') return undefined
  if (call.rate > call.limiter.limit || checker.joined(tx) || asked.gateOf.size > 0 || checker.inAdvance)
    return undefined
  if (lacking.get(row.row)) return undefined
  const outcome = await checker.decide(call, tx)
  const { decision, place } = outcome
  if (place >= decision.granted) {
    lacking.set(row.row, true)
    return undefined
  }
  // Equal calls are decided together, and each finds the row as the one before has left it.
  const { now, params, state } = afterCalls(outcome, place)
  const ended = place === 0 ? decision.ended : undefined
  const own: Decision = { now, params, state, granted: 1, share: call.rate, ended }
  return {
    payers: [{ ...first, decisions: [own] }, ...others.map((payer) => ({ ...payer, decisions: [] }))],
    asked,
    found: { isDone: true, looks: new Map([[row, own]]) },
    status: 'charged',
  }
}
