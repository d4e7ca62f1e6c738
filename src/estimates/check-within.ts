import { AnswerTo } from '../kernel/answers/answer.ts'
import { type Outcome, paidWith, paymentOf } from '../kernel/answers/outcome.ts'
import { Timeout } from '../kernel/engine/bounds.ts'
import { CallTime } from '../kernel/engine/call-time.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { denialAtGate } from '../kernel/engine/gate.ts'
import { degraded } from '../kernel/engine/layers.ts'
import { publishError } from '../kernel/engine/watch.ts'
import { UNHURRIED } from '../shared/unhurried.ts'
import { type Attempt, attemptOf } from './attempt.ts'

/** The answer of a check, or the last denial if the check takes longer than the rest of the wait. */
export async function checkWithin(
  leftMs: number,
  denial: Attempt | undefined,
  { checker, call }: LimiterCall,
  signal: AbortSignal | undefined,
): Promise<Attempt> {
  const { bounds } = checker.alone
  const ownMs = bounds?.time.ms ?? Number.POSITIVE_INFINITY
  let isOver = false
  const endsWait = () => {
    isOver = true
  }
  let resolvePassed = (_hasPassed: boolean) => {}
  const passed = new Promise<boolean>((resolve) => {
    resolvePassed = resolve
  })
  // A late grant pays for the call if `onError` has let it pass.
  const giveBack = async (outcome: Outcome) => {
    if (!(await passed)) await refund(checker, outcome)
  }
  const time = new CallTime(new Timeout(Math.min(leftMs, ownMs)))
  try {
    const looking = { time, signal, onWaitOver: leftMs < ownMs ? endsWait : undefined }
    const blocked = await denialAtGate(checker, call, undefined, looking)
    if (blocked) return attemptOf([{ answer: blocked, paid: paidWith(0) }], false)
    signal?.throwIfAborted()
    const outcome = await checker.decide(call, undefined, { ...looking, giveBack })
    return attemptOf([new AnswerTo(outcome, checker.terms.reporting)], false)
  } catch (error) {
    signal?.throwIfAborted()
    // A late grant is given back, so the last denial still holds.
    if (denial && isOver) return denial
    const answer = attemptOf(await degraded(error, [{ checker, call }]), false)
    resolvePassed(answer.success)
    return answer
  } finally {
    time.stop()
    resolvePassed(false)
  }
}

/** Gives back a late grant. Its error has no caller, so it is only published. */
async function refund(checker: Checker, outcome: Outcome): Promise<void> {
  const { call, decision, place } = outcome
  if (call.purpose !== 'take' || place >= decision.granted) return
  const { rate, windowStart } = paymentOf(outcome)
  const reserved = call.reserved > 0 ? -rate : 0
  const given = { rate: -rate, reserved, atLeast: null, paidWindowStart: windowStart }
  try {
    await checker.decide({ ...call, ...given, purpose: 'adjust' }, undefined, UNHURRIED)
  } catch (error) {
    publishError(checker, call, error)
  }
}
