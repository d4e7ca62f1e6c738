import { afterCalls, type Outcome } from '../kernel/answers/outcome.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { publishError } from '../kernel/engine/watch.ts'
import { whenAvailable } from '../kernel/limits/search.ts'
import type { OwnAction } from '../kernel/sql/decided.ts'
import type { Request } from '../kernel/store/call.ts'
import { UNHURRIED } from '../shared/unhurried.ts'
import { CANCEL } from './sql/starts.ts'

/** A call that is to start within a time. */
export interface Scheduling extends Request {
  readonly within: number
}

/** A call that could start in time, but was not given a start together with equal calls, asks again. */
export async function decide(checker: Checker, call: Scheduling, tx: At): Promise<Outcome> {
  for (;;) {
    const outcome = await decideOnce(checker, call, tx)
    const { startsAt, isGiven } = startOf(outcome)
    const { granted, now } = outcome.decision
    if (isGiven || granted === 0 || startsAt - now > call.within) return outcome
  }
}

/** A start time that is given after its caller has given up is cancelled. */
function decideOnce(checker: Checker, call: Request, tx: At): Promise<Outcome> {
  const giveBack = async (outcome: Outcome) => {
    const { startsAt, isGiven } = startOf(outcome)
    if (!isGiven) return
    try {
      await checker.decide(cancelOf(call, startsAt), undefined, UNHURRIED)
    } catch (error) {
      publishError(checker, call, error)
    }
  }
  const bounds = checker.boundsOf(tx)
  return checker.decide(call, tx, bounds && { ...bounds, giveBack })
}

/** When a call starts, or could start if it had a place. */
export function startOf({ call, decision, place }: Outcome): {
  readonly startsAt: number
  readonly isGiven: boolean
} {
  const before = afterCalls({ call, decision }, Math.min(place, decision.granted))
  return { startsAt: whenAvailable(call.limiter, before, call.rate), isGiven: place < decision.granted }
}

/** @param id The id that the call has used. */
export function cancelOf(call: Request, startsAt: number, id?: string): Request {
  return { ...call, purpose: withId(CANCEL, id), rate: -call.rate, within: null, refundableUntil: startsAt }
}

/** The action, which says in its entry what the id is. */
export function withId(action: OwnAction, id: string | undefined): OwnAction {
  return id === undefined ? action : { ...action, id }
}
