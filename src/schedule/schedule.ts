import { remainingOf } from '../kernel/answers/capacity.ts'
import { afterCalls, isRequest, type Outcome } from '../kernel/answers/outcome.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { type Blocked, denialAtGate } from '../kernel/engine/gate.ts'
import { callOn } from '../kernel/engine/handles.ts'
import { watched } from '../kernel/engine/layers.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { own, ownError, RatelimitError } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { CallOptions, OnceOptions } from '../kernel/options/calls.ts'
import { checkOption, isPrepaid } from '../kernel/options/validate.ts'
import type { Call, Request } from '../kernel/store/call.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { mayHaveCharged } from '../shared/may-have-charged.ts'
import { cancelOnce, chargeOnce, type Id, idFor, type Repeated } from './once.ts'
import { SCHEDULE } from './sql/starts.ts'
import { cancelOf, decide, startOf, withId } from './start.ts'

/** A call with a start time. It is charged. */
export interface Scheduled {
  /** The call may start at `startsAt`. */
  readonly success: true
  /** Milliseconds from now until the start. */
  readonly delay: number
  /** Unix milliseconds of the start, by the database's clock. */
  readonly startsAt: number
  /** With `once`: the id was used before, so this call has charged nothing. The start is that of the first. */
  readonly repeated?: true
  /**
   * Gives back what the call was charged, without what later calls already count on: their start times stay.
   * It gives back once: a second call does nothing, even if the transaction of the first was rolled back. With
   * `once` it also frees the id, and of the answers with one id, in any process, one gives back. An answer that
   * is `repeated` gives nothing back if its call had another key or rate than the one that was charged.
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
export interface ScheduleOptions extends CallOptions, OnceOptions {
  /** The longest time that the call may have to wait for its start. */
  readonly within: Duration
  /** The cost of the call, 0 or more. 0 starts at once and charges nothing. Default: `1`. */
  readonly rate?: number | undefined
}

const SCHEDULE_NAMES: NamesOf<ScheduleOptions> = {
  ...CALLS.call,
  ...CALLS.once,
  ...{ within: true, rate: true },
}

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
  const { within, once, tx, ...callOptions } = options
  const { checker, call } = await callOn(ratelimit, key, callOptions)
  return await own(scheduleCall(checker, call, { within, once, tx }))
}

/** Charges a call that may start within a time, and says when. */
async function scheduleCall(
  checker: Checker,
  call: Call,
  { within, once, tx }: Pick<ScheduleOptions, 'within' | 'once' | 'tx'>,
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
    'schedule cannot be combined with dryRun. A call that passes without a charge has no place in line.',
  )
  const id = once && (await idFor(once, { checker, call }, withinMs))
  if (!isRequest(call)) return startNow(checker, call, id, tx)
  const { answer } = await watched(
    [{ checker, call }],
    tx,
    () => scheduleIn(checker, call, { withinMs, id }, tx),
    ({ answer, remaining }) => [
      {
        answer: { retryAfter: 0, ...answer, limit: call.limiter.limit, remaining },
        rate: answer.success && answer.repeated ? 0 : undefined,
      },
    ],
  )
  return answer
}

/** Without a limit a call starts now. */
async function startNow(checker: Checker, call: Call, id: Id | undefined, tx: At): Promise<Scheduled> {
  const now = { startsAt: checker.clockMs() }
  const startIn = ({ startsAt }: typeof now) => (call.rate === 0 ? undefined : startsAt)
  const found = id ? await chargeOnce(checker, id, call, tx, async () => now, startIn) : now
  const { startsAt } = found
  const start = 'repeated' in found ? { startsAt, repeated: found.repeated } : { startsAt }
  return { success: true, delay: 0, ...start, cancel: async () => false }
}

/** How a call is scheduled. */
interface Way {
  readonly withinMs: number
  readonly id: Id | undefined
}

async function scheduleIn(
  checker: Checker,
  call: Request,
  way: Way,
  tx: At,
): Promise<{ readonly answer: Scheduled | NotScheduled; readonly remaining: number }> {
  const isLook = call.rate === 0
  const look = { ...call, rate: 0, purpose: 'look', within: null } as const
  const scheduling = {
    ...call,
    purpose: isLook ? 'look' : withId(SCHEDULE, way.id?.key),
    within: way.withinMs,
  } as const
  const charge = async (at: At) => {
    const denial = isLook ? undefined : await denialAtGate(checker, call, at)
    return denial ?? (await decide(checker, scheduling, at))
  }
  const startIn = (found: Outcome | Blocked) => {
    if (isLook || !('decision' in found)) return undefined
    const { startsAt, isGiven } = startOf(found)
    return isGiven ? startsAt : undefined
  }
  const { found, repeated } = await withinTimeout([checker], tx, async (at) => {
    const found = way.id ? await chargeOnce(checker, way.id, call, at, charge, startIn) : await charge(at)
    if (!('repeated' in found)) return { found }
    return { repeated: found, found: await checker.decide(look, at) }
  })
  if (!('decision' in found)) {
    const { success, retryAfter, blockedUntil, remaining } = found
    return { answer: { success, retryAfter, blockedUntil }, remaining }
  }
  const after = afterCalls(found, repeated ? 0 : Math.min(found.place + 1, found.decision.granted))
  const answer = repeated
    ? repeatedOf(checker, call, repeated, found, way)
    : answerOf(checker, call, found, way)
  return { answer, remaining: remainingOf(call.limiter, after) }
}

function repeatedOf(
  checker: Checker,
  call: Request,
  { startsAt, repeated, mark }: Repeated,
  { decision: { now } }: Outcome,
  { id }: Way,
): Scheduled {
  const cancel =
    call.rate === 0 ? async () => false : cancelIn(checker, call, startsAt, id && { ...id, mark })
  return { success: true, repeated, delay: Math.max(startsAt - now, 0), startsAt, cancel }
}

function answerOf(
  checker: Checker,
  call: Request,
  outcome: Outcome,
  { withinMs, id }: Way,
): Scheduled | NotScheduled {
  const { now } = outcome.decision
  // Nothing was charged, so there is nothing to wait for or to give back.
  if (call.rate === 0) return { success: true, delay: 0, startsAt: now, cancel: async () => false }
  const { startsAt, isGiven } = startOf(outcome)
  const delay = startsAt - now
  if (!isGiven) return { success: false, retryAfter: Math.max(delay - withinMs, 0) }
  return { success: true, delay, startsAt, cancel: cancelIn(checker, call, startsAt, id) }
}

function cancelIn(
  checker: Checker,
  call: Request,
  startsAt: number,
  id: Id | undefined,
): Scheduled['cancel'] {
  // The row does not know who was cancelled: another call may have this place by now.
  let isCancelled = false
  return async (options = {}) => {
    checkOptions(options, CALLS.tx)
    if (isCancelled) return false
    isCancelled = true
    const { tx } = options
    try {
      isCancelled = id
        ? await cancelOnce(checker, id, call, { startsAt, mark: id.mark }, tx)
        : (await checker.decide(cancelOf(call, startsAt), tx)).decision.granted > 0
      return isCancelled
    } catch (error) {
      isCancelled = mayHaveCharged(error)
      throw ownError(error)
    }
  }
}
