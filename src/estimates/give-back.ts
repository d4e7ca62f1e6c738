import type { Answered } from '../kernel/answers/answer.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { publishError } from '../kernel/engine/watch.ts'
import { RunningTime } from '../kernel/engine/within-timeout.ts'
import { UNHURRIED } from '../shared/unhurried.ts'
import { settle } from './settle.ts'
import { chargedBy } from './settlement.ts'

/**
 * Gives back what calls have charged whose answers nobody waits for. An error has no caller, so it is only
 * published.
 */
export async function giveBackUnread(
  calls: readonly LimiterCall[],
  answered: readonly Answered[],
): Promise<void> {
  const charged = calls.flatMap((each, place) => {
    const own = answered[place] as Answered
    return own.answer.success && own.paid.rate > 0 ? [chargedBy(each, own, false)] : []
  })
  if (charged.length === 0) return
  const time = new RunningTime(UNHURRIED.time)
  try {
    await settle(charged, { costs: { each: charged.map(() => 0) } }, time)
  } catch (error) {
    for (const { each } of charged) publishError(each.checker, each.call, error)
  } finally {
    time.stop()
  }
}
