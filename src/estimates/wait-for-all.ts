import type { Answered } from '../kernel/answers/answer.ts'
import type { LimitAllResult, LimitResult } from '../kernel/answers/results.ts'
import { whenAborted } from '../kernel/base/abort.ts'
import type { Database } from '../kernel/database/database.ts'
import { channels } from '../kernel/diagnostics.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { Timeout, timedOut } from '../kernel/engine/bounds.ts'
import { CallTime } from '../kernel/engine/call-time.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { degraded, watched } from '../kernel/engine/layers.ts'
import { publishError } from '../kernel/engine/watch.ts'
import { shortestTimeoutOf } from '../kernel/engine/within-timeout.ts'
import { own } from '../kernel/errors.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { answerTogether, reportsOf } from '../kernel/lists/limit-all.ts'
import { callsOf, combined } from '../kernel/lists/requests.ts'
import type { AllOptions, BlockOptions, PatientOptions, Requested } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { UNHURRIED } from '../shared/unhurried.ts'
import { checkSignal, type Patience, untilAllowed } from '../shared/until-allowed.ts'
import { type Attempt, attemptOf } from './attempt.ts'
import { checkWithin } from './check-within.ts'
import { isPaidByFunds } from './funds.ts'
import { settle } from './settle.ts'
import { chargedBy } from './settlement.ts'

/**
 * Waits until one call is allowed, or until the time is over. The time also ends a check that is under way, and
 * what that has charged is given back, unless it has used an id. A call with an id, or with rows that had to be
 * found, is a list.
 *
 * @throws RatelimitError `INVALID_DURATION`, `INVALID_OPTION`
 */
export async function waitForOne(
  each: LimiterCall,
  timeout: Duration,
  { signal, once }: Pick<BlockOptions, 'signal' | 'once'>,
): Promise<LimitResult> {
  const timeoutMs = parseDuration(timeout, 'The timeout', 0)
  checkWait('blockUntilReady', [each], signal)
  const ids = [await idCall(once, [each])]
  const isList = once !== undefined || isPaidByFunds(each)
  const [answered] = await waitFor([each], { timeoutMs, signal }, (leftMs, denial) =>
    isList ? attemptWithin(leftMs, denial, [each], ids, signal) : checkWithin(leftMs, denial, each, signal),
  )
  return (answered as Answered).answer
}

/**
 * Checks again until all calls are allowed, or until the time is over. A check that is under way at its end, or
 * when the signal aborts, goes on alone, and what it has charged is given back. An id that it has used stays
 * used, so its charge stays too: the time then ends the wait with `OUTCOME_UNKNOWN`, and the call can be
 * repeated with that id.
 *
 * @throws RatelimitError `INVALID_DURATION`, `INVALID_OPTION`
 */
export async function waitForAll<Request extends Requested>(
  requests: readonly Request[],
  { wait, signal, once, tx }: AllOptions & PatientOptions,
): Promise<LimitAllResult<Request>> {
  const timeoutMs = parseDuration(wait, 'wait', 0)
  const calls = await callsOf(requests)
  checkWait('limitAll with wait', calls, signal, tx)
  const ids = [await idCall(once, calls)]
  const waiting = waitFor(calls, { timeoutMs, signal }, (leftMs, denial) =>
    attemptWithin(denial ? leftMs : Number.POSITIVE_INFINITY, denial, calls, ids, signal),
  )
  return combined(requests, await own(waiting))
}

/** @throws RatelimitError `INVALID_OPTION` */
function checkWait(
  name: string,
  calls: readonly LimiterCall[],
  signal: AbortSignal | undefined,
  tx?: Database,
): void {
  checkSignal(signal)
  checkOption(
    !calls.some(({ checker }) => checker.joined(tx)),
    `${name} cannot be combined with tx. A wait would hold the locks of the transaction.`,
  )
}

/** The answers of the last check. */
function waitFor(
  calls: readonly LimiterCall[],
  patience: Patience,
  check: (leftMs: number, denial: Attempt | undefined) => Promise<Attempt>,
): Promise<readonly Answered[]> {
  const onWait = (waitMs: number, { answered }: Attempt) => {
    for (const [place, { checker, call }] of calls.entries()) {
      const { prefix } = checker.rows.namespace
      if (!answered[place]?.answer.success) channels.wait?.publish({ prefix, key: call.key, waitMs })
    }
  }
  const waiting = async () => (await untilAllowed(patience, check, onWait)).answered
  return watched(calls, undefined, waiting, reportsOf)
}

/** A check, or the last denial if the wait is over first and what the check charges is given back. */
async function attemptWithin(
  endsInMs: number,
  denial: Attempt | undefined,
  calls: readonly LimiterCall[],
  ids: readonly (LimiterCall | undefined)[],
  signal: AbortSignal | undefined,
): Promise<Attempt> {
  const usesId = ids.some((id) => id !== undefined)
  const found = await answersWithin(endsInMs, calls, ids, signal)
  if (!found && denial && !usesId) return denial
  // It may have waited for its own keys, so `onError: 'allow'` does not let it pass.
  return attemptOf(found ?? (await degraded(timedOut(true, true), calls)), usesId)
}

/**
 * The answers of a check, or undefined if the wait is over before they come. Then the `timeout` of the limiters
 * ends the check no more: what it charges late is given back, unless it has used an id.
 */
async function answersWithin(
  endsInMs: number,
  calls: readonly LimiterCall[],
  ids: readonly (LimiterCall | undefined)[],
  signal: AbortSignal | undefined,
): Promise<Answered[] | undefined> {
  const { bounds } = shortestTimeoutOf(calls.map(({ checker }) => checker)).alone
  const time = new CallTime(bounds?.time ?? new Timeout(Number.POSITIVE_INFINITY))
  const answers = answerTogether(calls, time, ids).finally(() => time.stop())
  const usesId = ids.some((id) => id !== undefined)
  return unlessOver(answers, endsInMs, signal, (late) => {
    if (!usesId) giveBackLate(calls, time, late)
  })
}

/**
 * The answers, or undefined if the time is over before they come. Rejects with the signal's reason if that
 * aborts before.
 *
 * @param late Gets the answers if they come after that.
 */
function unlessOver<T>(
  answers: Promise<T>,
  endsInMs: number,
  signal: AbortSignal | undefined,
  late: (answers: Promise<T>) => void,
): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    let isDone = false
    const once = (pass: () => void) => {
      if (!isDone) pass()
      isDone = true
    }
    const endWith = (pass: () => void) =>
      once(() => {
        late(answers)
        pass()
      })
    const deadline = new Timeout(endsInMs).begin({ over: () => endWith(() => resolve(undefined)) })
    const stopSignal = signal && whenAborted(signal, () => endWith(() => reject(signal.reason)))
    const found = (pass: () => void) => {
      once(pass)
      deadline.stop()
      stopSignal?.()
    }
    answers.then(
      (answered) => found(() => resolve(answered)),
      (error) => found(() => reject(error)),
    )
  })
}

/** Gives back what calls charge whose answers nobody waits for. */
function giveBackLate(calls: readonly LimiterCall[], time: CallTime, answers: Promise<Answered[]>): void {
  const [{ checker }] = calls as readonly [LimiterCall]
  time.stop()
  const deadline = UNHURRIED.time.begin(time)
  const givingBack = async () => {
    const answered = await answers.finally(() => deadline.stop())
    const charged = calls
      .map((each, place) => chargedBy(each, answered[place] as Answered, false))
      .filter(({ estimate }) => estimate.paid.rate > 0)
    if (charged.length === 0) return
    const settling = new CallTime(UNHURRIED.time)
    try {
      await settle(charged, { costs: { each: charged.map(() => 0) } }, settling)
    } catch (error) {
      for (const { each } of charged) publishError(each.checker, each.call, error)
    } finally {
      settling.stop()
    }
  }
  checker.alone.goOn(givingBack().catch(() => {}))
}
