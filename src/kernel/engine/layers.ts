import type { Answered } from '../answers/answer.ts'
import { onFirstUse } from '../base/once.ts'
import { channels } from '../diagnostics.ts'
import type { Call } from '../store/call.ts'
import type { At } from './bounds.ts'
import type { Checker, LimiterCall } from './checker.ts'
import type { Report, Watched } from './watch.ts'

// What is around the decision on calls. From the outside in: diagnostics and the layers of `use`; `onError`;
// the time of the whole call; what memory answers; the circuit, and sweeps afterwards. In a caller's
// transaction there are only the first and the decision itself. A layer that calls do not use costs nothing.

const watching = /* @__PURE__ */ onFirstUse(() => import('./watch.ts'))
const degrading = /* @__PURE__ */ onFirstUse(() => import('./degrading.ts'))

/**
 * Returns the answer and the payment of a call. During an outage, `onError` answers. An answer from memory is
 * no promise, because waiting for one takes longer than the answer.
 */
export function answerTo(checker: Checker, call: Call, tx: At): Answered | Promise<Answered> {
  if (!isWatched(checker)) return decidedOrDegraded(checker, call, tx)
  return watched(
    [{ checker, call }],
    tx,
    async () => decidedOrDegraded(checker, call, tx),
    (each) => [each],
  )
}

function decidedOrDegraded(checker: Checker, call: Call, tx: At): Answered | Promise<Answered> {
  const answered = checker.answer(call, tx)
  const throws = checker.alone.degrading.onError === 'throw'
  if (throws || 'answer' in answered || checker.joined(tx)) return answered
  return answered.catch(async (error) => (await degraded(error, [{ checker, call }]))[0] as Answered)
}

/** Answers calls that failed together by `onError`, or throws their error. */
export async function degraded(error: unknown, calls: readonly LimiterCall[]): Promise<Answered[]> {
  return (await degrading()).degrade(error, calls)
}

/** Publishes how calls were decided, or that they failed. */
export function watched<T>(
  calls: readonly Watched[],
  tx: At,
  decide: () => Promise<T>,
  reportsOf: (found: T) => readonly Report[],
): Promise<T> {
  if (!calls.some(({ checker }) => isWatched(checker))) return decide()
  return Promise.resolve(watching()).then(({ watch }) => watch(calls, tx, decide, reportsOf))
}

/** Whether somebody listens to the decisions. */
function isWatched({ terms: { layers } }: Checker): boolean {
  return !!(layers.length > 0 || channels.decision?.hasSubscribers || channels.error?.hasSubscribers)
}
