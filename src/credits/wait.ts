import { blockUntilReady, giveBackLate, unlessOver } from '../estimates/wait-for-all.ts'
import type { Answered } from '../kernel/answers/answer.ts'
import type { LimitResult } from '../kernel/answers/results.ts'
import { channels } from '../kernel/diagnostics.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { timedOut } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { isFunded } from '../kernel/engine/funds.ts'
import { degraded, watched } from '../kernel/engine/layers.ts'
import { checkSignal, untilAllowed } from '../kernel/engine/until-allowed.ts'
import { answerTogether } from '../kernel/lists/limit-all.ts'
import { checkOption } from '../kernel/options/validate.ts'

/**
 * Waits until a call on credits is allowed, or until the time is over. The time also ends a check that is under
 * way, and what that has charged is given back.
 *
 * @throws RatelimitError `INVALID_DURATION`, `INVALID_OPTION`
 */
export async function waitFor(
  each: LimiterCall,
  timeout: Duration,
  signal: AbortSignal | undefined,
): Promise<LimitResult> {
  const { checker, call } = each
  if (!isFunded(each)) return blockUntilReady(checker, call, timeout, signal)
  const timeoutMs = parseDuration(timeout, 'The timeout', 0)
  checkSignal(signal)
  checkOption(!checker.joined(undefined), 'blockUntilReady cannot wait inside a transaction.')
  const { prefix } = checker.rows.namespace
  const check = async (leftMs: number, denial: LimitResult | undefined): Promise<LimitResult> => {
    const answers = answerTogether([each], undefined, [])
    const late = (found: Promise<Answered[]>) => giveBackLate([each], found)
    const found = await unlessOver(answers, leftMs, signal, late)
    if (!found && denial) return denial
    // It may have waited for its own key, so `onError: 'allow'` does not let it pass.
    const [answered] = found ?? (await degraded(timedOut(true, true), [each]))
    return (answered as Answered).answer
  }
  const answering = () =>
    untilAllowed({ timeoutMs, signal }, check, (waitMs) =>
      channels.wait?.publish({ prefix, key: call.key, waitMs }),
    )
  return watched([each], undefined, answering, (answer) => [{ answer }])
}
