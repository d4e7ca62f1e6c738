import {
  type Answered,
  AnswerTo,
  answerOf,
  denialUntil,
  grantedIn,
  letPass,
  reachedIn,
} from '../answers/answer.ts'
import { behindBlock, capacityOf } from '../answers/capacity.ts'
import { paidWith, paymentOf } from '../answers/outcome.ts'
import type { Allowed, Denied } from '../answers/results.ts'
import { crossedFrom } from '../answers/thresholds.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { whenAvailable } from '../limits/search.ts'
import type { Threshold } from '../options/choices.ts'
import type { Decision } from '../store/call.ts'
import { blockedUntil, type CombinedCalls, isRepeated, withoutRow } from './combined-calls.ts'
import { found } from './enough.ts'
import { afterRefund, fits, partsOf, returnedTo } from './parts.ts'
import type { Found, RowRequest } from './sending.ts'

// The answers to calls that were decided together.

/** The answers in the order of the calls. */
export function answersIn(asked: CombinedCalls, decisions: Found): Answered[] {
  if (isRepeated(asked, decisions)) return answersToRepeated(asked, decisions)
  return addReturned(asked, decisions, decidedAnswers(asked, decisions))
}

function unlimitedAnswer({ unlimited }: CombinedCalls, each: LimiterCall): Answered {
  return new AnswerTo(found(unlimited, each), each.checker.terms.reporting)
}

/** The answers to calls whose id was used before. */
function answersToRepeated(asked: CombinedCalls, { looks }: Found): Answered[] {
  return asked.calls.map((each) => {
    const row = asked.rowOf.get(each)
    const { answer } = row ? presentOf(row, found(looks, row)) : unlimitedAnswer(asked, each)
    return {
      answer: { ...(answer as Allowed), ...grantedIn(each.call, 0), repeated: true },
      paid: paidWith(0),
    }
  })
}

/** The answers to calls that were decided now. */
function decidedAnswers(asked: CombinedCalls, decisions: Found): Answered[] {
  const { isDone, looks } = decisions
  // Of several calls for one row, the first one reports the crossed thresholds and the period that has ended.
  const reported: RowRequest[] = []
  return asked.calls.map((each) => {
    const { call } = each
    const row = asked.rowOf.get(each)
    const blocked = blockedUntil(asked, decisions, each)
    if (blocked !== undefined)
      return { answer: blockedAnswer(asked, looks, each, blocked), paid: paidWith(0) }
    if (!row) return unlimitedAnswer(asked, each)
    const look = found(looks, row)
    const { dryRun } = row.reporting
    if (call.purpose === 'take' && !fits(row, look)) {
      const denied = rowDenial(row, look)
      return { answer: dryRun ? letPass(denied, call) : denied, paid: paidWith(0) }
    }
    const part = isDone ? partsOf(row, look).at(-1) : undefined
    if (!part) return presentOf(row, look)
    const isReported = reported.includes(row)
    reported.push(row)
    const decision = isReported ? { ...part.decision, ended: undefined } : part.decision
    const paid = paymentOf({ call, decision, place: 0 })
    const reporting = { dryRun, thresholds: isReported ? [] : notReached(row, look) }
    return { answer: answerOf({ call: part.call, decision, place: 0 }, reporting), paid }
  })
}

/** The denial of a call whose key is blocked until then, or longer if the limit has too little then. */
function blockedAnswer(
  asked: CombinedCalls,
  looks: Found['looks'],
  each: LimiterCall,
  until: number,
): Denied {
  const row = asked.rowOf.get(each)
  const look = row ? found(looks, row) : withoutRow(asked, looks, each)
  const own = row && !fits(row, look) ? rowDenial(row, look) : denialUntil(each.call.limiter, look, until)
  const denied = behindBlock(own, until)
  return { ...denied, retryAfter: denied.reset - look.now }
}

/** The present state of a limit that would allow, but from which nothing was taken. */
function presentOf(row: RowRequest, look: Decision): Answered {
  const call: RowRequest = { ...row, rate: 0, atLeast: null, purpose: 'look' }
  return { answer: answerOf({ call, decision: look, place: 0 }, row.reporting), paid: paidWith(0) }
}

/** Adds to the answers of refunds how much was given back. */
function addReturned(
  { calls, rowOf }: CombinedCalls,
  { isDone, looks }: Found,
  answers: Answered[],
): Answered[] {
  if (calls.every(({ call }) => call.rate >= 0)) return answers
  // For each row, the amount that refunds gave back and no answer has reported yet.
  const unreported = new Map([...looks].map(([row, look]) => [row, isDone ? returnedTo(row, look) : 0]))
  return answers.map((answered, place) => {
    const each = calls[place] as LimiterCall
    const { rate } = each.call
    const row = rowOf.get(each)
    if (!row || rate >= 0) return answered
    const rest = unreported.get(row) ?? 0
    const returned = Math.min(-rate, rest)
    unreported.set(row, rest - returned)
    return { answer: { ...answered.answer, returned }, paid: answered.paid }
  })
}

/** A denial, which counts the refunds for `reset`, but not for `remaining`. */
function rowDenial(row: RowRequest, look: Decision): Denied {
  const { limiter, needed } = row
  return denialUntil(limiter, look, whenAvailable(limiter, afterRefund(row, look), needed))
}

/** The thresholds that a charge may cross: those that were not reached before the refunds. */
function notReached(
  { limiter, reporting: { thresholds } }: RowRequest,
  look: Decision,
): readonly Threshold[] {
  if (thresholds.length === 0) return thresholds
  const [capacity, reached] = [capacityOf(limiter, look), reachedIn(limiter, look)]
  return crossedFrom(limiter, capacity, reached, Number.POSITIVE_INFINITY, thresholds)
}
