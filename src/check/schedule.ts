import { whenAvailable } from '../algorithms/search.ts'
import { remainingOf } from '../answers/capacity.ts'
import { afterCalls } from '../answers/outcome.ts'
import { checkOptions } from '../base/check-options.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { retrying } from '../database/retry.ts'
import { channels } from '../diagnostics.ts'
import { type Duration, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import { TX_NAMES } from '../options/calls.ts'
import { checkOption, isBalance } from '../options/validate.ts'
import type { Asking } from '../runtime/ask.ts'
import type { Call, Decision, Request } from '../runtime/call.ts'
import { decideOne } from '../runtime/decide.ts'
import { watchWait } from '../runtime/long-waits.ts'
import { type Checker, isRequest } from './checker.ts'
import { countDenial } from './denial-counts.ts'
import { blockOn } from './gate.ts'
import { mayHaveCharged } from './may-have-charged.ts'
import { outsideQueue } from './outside-queue.ts'
import { publishError } from './publish-error.ts'

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
}

const ONE = { length: 1 }

/** Charges a call that may start within a time, and says when. */
export async function schedule(
  checker: Checker,
  call: Call,
  within: Duration,
  tx: Database | undefined,
): Promise<Scheduled | NotScheduled> {
  const withinMs = parseDuration(within, 'within', 0)
  if (call.rate <= 0) throw new RatelimitError('INVALID_RATE', 'The rate of schedule must be above 0.')
  const { kind } = call.limiter.algorithm
  checkOption(
    kind === 'bucket' && !isBalance(call.limiter),
    'schedule needs a limiter that refills: a token bucket or gcra.',
  )
  checkOption(
    !checker.config.reporting.dryRun,
    'schedule cannot be tried with dryRun: it promises start times.',
  )
  checkOption(
    !checker.config.namespace.ledger,
    'schedule has no meaning with onEntries: it charges units that are not there yet.',
  )
  if (!isRequest(call)) {
    return { success: true, delay: 0, startsAt: checker.clockMs(), cancel: async () => false }
  }
  const { prefix } = checker.config.namespace
  const beganAt = performance.now()
  try {
    const blocked = checker.config.blocks ? await blockOn(checker, call, tx) : undefined
    const decision = blocked
      ? undefined
      : await decide(checker, { ...call, purpose: 'schedule' }, { within: withinMs }, tx)
    const answer = decision
      ? answerOf(checker, call, decision, withinMs)
      : ({ success: false, retryAfter: blocked?.retryAfter ?? 0 } as const)
    const remaining = decision
      ? remainingOf(call.limiter, afterCalls({ call, decision }, decision.granted))
      : 0
    if (!answer.success) countDenial(checker.config, call.key)
    channels.decision?.publish({
      ...{ prefix, key: call.key, rate: call.rate, success: answer.success, limit: call.limiter.limit },
      ...{ remaining, degraded: false, wouldDeny: false, leased: false },
      retryAfter: answer.success ? 0 : answer.retryAfter,
      joined: tx !== undefined || checker.config.home.isTransaction,
      durationMs: performance.now() - beganAt,
    })
    return answer
  } catch (error) {
    publishError(prefix, call, error)
    throw error
  }
}

function answerOf(
  checker: Checker,
  call: Request,
  decision: Decision,
  withinMs: number,
): Scheduled | NotScheduled {
  const startsAt = whenAvailable(call.limiter, decision, call.rate)
  const delay = startsAt - decision.now
  if (decision.granted === 0) return { success: false, retryAfter: Math.max(delay - withinMs, 0) }
  // The row does not know who was cancelled: another call may have this place by now.
  let isCancelled = false
  const cancel: Scheduled['cancel'] = async (options = {}) => {
    checkOptions(options, TX_NAMES)
    if (isCancelled) return false
    isCancelled = true
    try {
      const { granted } = await decide(checker, { ...call, purpose: 'cancel' }, { startsAt }, options.tx)
      checker.forgetDenials(call.key)
      isCancelled = granted > 0
      return isCancelled
    } catch (error) {
      isCancelled = mayHaveCharged(error)
      throw error
    }
  }
  return { success: true, delay, startsAt, cancel }
}

/** Decides by a statement of its own, which waits for the row: calls are served in the order of its lock. */
function decide(
  checker: Checker,
  request: Request,
  times: Asking['schedule'] & object,
  tx: Database | undefined,
): Promise<Decision> {
  const { config } = checker
  const ask = (connection: Connection) => {
    const commit = connection.isTransaction ? 'as the session' : config.commit
    return decideOne({ ...config, connection, commit, schedule: times }, { request, calls: ONE })
  }
  const joined = checker.joined(tx)
  if (joined) return ask(joined)
  const stage = { mayCharge: true, mayWait: true, isContended: true }
  return outsideQueue(
    checker,
    stage,
    async (isOver) => {
      await config.ensureTables?.()
      const decision = await watchWait(() => retrying(() => ask(config.home)))
      if (!isOver() || request.purpose === 'cancel' || decision.granted === 0) return decision
      // Its caller has given up.
      const startsAt = whenAvailable(request.limiter, decision, request.rate)
      const given = { request: { ...request, purpose: 'cancel' as const }, calls: ONE }
      await decideOne({ ...config, connection: config.home, schedule: { startsAt } }, given)
      return decision
    },
    () => ({ leave: checker.enter(request.key) }),
  )
}
