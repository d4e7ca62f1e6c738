import { remainingOf } from '../kernel/answers/capacity.ts'
import { afterCalls, type Outcome } from '../kernel/answers/outcome.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { own } from '../kernel/base/own.ts'
import type { Database } from '../kernel/database/database.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { type Blocked, blockOn } from '../kernel/engine/gate.ts'
import { callOn } from '../kernel/engine/handles.ts'
import { watched } from '../kernel/engine/layers.ts'
import { mayHaveCharged } from '../kernel/engine/may-have-charged.ts'
import { UNHURRIED } from '../kernel/engine/unhurried.ts'
import { isRequest } from '../kernel/engine/unlimited.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { ownError, RatelimitError } from '../kernel/errors.ts'
import { whenAvailable } from '../kernel/limits/search.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { CallOptions } from '../kernel/options/calls.ts'
import { checkOption, isPrepaid } from '../kernel/options/validate.ts'
import type { Call, Request } from '../kernel/store/call.ts'
import type { Ratelimit } from '../ratelimit.ts'

/** A call with a start time. It is charged. */
export interface Scheduled {
  /** The call may start at `startsAt`. */
  readonly success: true
  /** Milliseconds from now until the start. */
  readonly delay: number
  /** Unix milliseconds of the start, by the database's clock. */
  readonly startsAt: number
  /**
   * Gives back what the call was charged, without what later calls already count on: their start times stay.
   * It gives back once: a second call does nothing, even if the transaction of the first was rolled back.
   *
   * @param options `tx`: your transaction. Default: the limiter's `db`.
   * @returns Whether something was given back. From the start on, nothing is.
   * @throws RatelimitError the database errors of `Ratelimit.limit`.
   */
  cancel(options?: { readonly tx?: Database | undefined }): Promise<boolean>
}

/** A call that could not start in time. Nothing was charged or written. */
export interface NotScheduled {
  /** The call could not start in time. */
  readonly success: false
  /** Milliseconds until the same call would get a start time. `Infinity` if its rate exceeds the capacity. */
  readonly retryAfter: number
  /** Unix milliseconds at which the block of the key ends. Only while the key is blocked. */
  readonly blockedUntil?: number
}

/** Options of `schedule`. */
export interface ScheduleOptions extends CallOptions {
  /** The longest time that the call may have to wait for its start. */
  readonly within: Duration
  /** The cost of the call, 0 or more. 0 starts at once and charges nothing. Default: `1`. */
  readonly rate?: number | undefined
}

const SCHEDULE_NAMES: NamesOf<ScheduleOptions> = { ...CALLS.call, within: true, rate: true }

/**
 * Gives the call a start time, in the order in which calls of all processes come, and charges it at once. The
 * units that are not there yet become a debt of at most what refills `within` that time. If the call could not
 * start by then, it is denied and charged nothing. For token buckets and `gcra`.
 *
 * @throws RatelimitError `INVALID_OPTION` for a limiter that does not refill, and for `dryRun`; `INVALID_RATE`
 * for a negative rate; the errors of `Ratelimit.limit`.
 *
 * @example
 * ```ts
 * import { setTimeout as sleep } from 'node:timers/promises'
 * import type { Ratelimit } from 'drizzle-ratelimit'
 * import { schedule } from 'drizzle-ratelimit/schedule'
 *
 * declare const partner: Ratelimit
 * declare function callPartner(): Promise<void>
 * const turn = await schedule(partner, 'partner', { within: '30s' })
 * if (turn.success) {
 *   await sleep(turn.delay)
 *   await callPartner()
 * }
 * ```
 */
export async function schedule(
  ratelimit: Ratelimit,
  key: string,
  options: ScheduleOptions,
): Promise<Scheduled | NotScheduled> {
  checkOptions(options, SCHEDULE_NAMES)
  const { within, ...callOptions } = options
  const { checker, call } = await callOn(ratelimit, key, callOptions)
  return await own(scheduleCall(checker, call, within, options.tx))
}

/** Charges a call that may start within a time, and says when. */
async function scheduleCall(
  checker: Checker,
  call: Call,
  within: Duration,
  tx: Database | undefined,
): Promise<Scheduled | NotScheduled> {
  const withinMs = parseDuration(within, 'within', 0)
  if (call.rate < 0) throw new RatelimitError('INVALID_RATE', 'The rate of schedule must be 0 or more.')
  const { kind } = call.limiter.algorithm
  checkOption(
    kind === 'bucket' && !isPrepaid(call.limiter),
    'schedule needs a limiter that refills: a token bucket or gcra.',
  )
  checkOption(
    !checker.terms.reporting.dryRun,
    'schedule cannot be tried with dryRun: it promises start times.',
  )
  checkOption(
    !checker.rows.namespace.ledger,
    'schedule cannot be combined with ledger: it charges units that are not there yet.',
  )
  if (!isRequest(call)) {
    return { success: true, delay: 0, startsAt: checker.clockMs(), cancel: async () => false }
  }
  const { answer } = await watched(
    [{ checker, call }],
    tx,
    () => scheduleIn(checker, call, withinMs, tx),
    ({ answer, remaining }) => [
      { answer: { retryAfter: 0, ...answer, limit: call.limiter.limit, remaining } },
    ],
  )
  return answer
}

async function scheduleIn(
  checker: Checker,
  call: Request,
  withinMs: number,
  tx: At,
): Promise<{ readonly answer: Scheduled | NotScheduled; readonly remaining: number }> {
  const isLook = call.rate === 0
  const scheduling = { ...call, purpose: isLook ? 'look' : 'schedule', within: withinMs } as const
  const found = await withinTimeout([checker], tx, async (at) => {
    const denial = checker.terms.blocks && !isLook ? await blockOn(checker, call, at) : undefined
    return denial ?? (await decide(checker, scheduling, at))
  })
  if (!('decision' in found)) return { answer: notScheduled(found), remaining: found.remaining }
  const after = afterCalls(found, Math.min(found.place + 1, found.decision.granted))
  return { answer: answerOf(checker, call, found, withinMs), remaining: remainingOf(call.limiter, after) }
}

function notScheduled({ success, retryAfter, blockedUntil }: Blocked): NotScheduled {
  return { success, retryAfter, blockedUntil }
}

/** A call that could start in time, but was not given a start together with equal calls, asks again. */
async function decide(
  checker: Checker,
  call: Request & { readonly within: number },
  tx: At,
): Promise<Outcome> {
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
    } catch {}
  }
  const bounds = checker.boundsOf(tx)
  return checker.decide(call, tx, bounds && { ...bounds, giveBack })
}

/** When a call starts, or could start if it had a place. */
function startOf({ call, decision, place }: Outcome): {
  readonly startsAt: number
  readonly isGiven: boolean
} {
  const before = afterCalls({ call, decision }, Math.min(place, decision.granted))
  return { startsAt: whenAvailable(call.limiter, before, call.rate), isGiven: place < decision.granted }
}

function cancelOf(call: Request, startsAt: number): Request {
  return { ...call, purpose: 'cancel', rate: -call.rate, within: null, refundableUntil: startsAt }
}

function answerOf(
  checker: Checker,
  call: Request,
  outcome: Outcome,
  withinMs: number,
): Scheduled | NotScheduled {
  const { now } = outcome.decision
  // Nothing was charged, so there is nothing to wait for or to give back.
  if (call.rate === 0) return { success: true, delay: 0, startsAt: now, cancel: async () => false }
  const { startsAt, isGiven } = startOf(outcome)
  const delay = startsAt - now
  if (!isGiven) return { success: false, retryAfter: Math.max(delay - withinMs, 0) }
  // The row does not know who was cancelled: another call may have this place by now.
  let isCancelled = false
  const cancel: Scheduled['cancel'] = async (options = {}) => {
    checkOptions(options, CALLS.tx)
    if (isCancelled) return false
    isCancelled = true
    try {
      const { decision } = await checker.decide(cancelOf(call, startsAt), options.tx)
      isCancelled = decision.granted > 0
      return isCancelled
    } catch (error) {
      isCancelled = mayHaveCharged(error)
      throw ownError(error)
    }
  }
  return { success: true, delay, startsAt, cancel }
}
