import type { Answered } from '../kernel/answers/answer.ts'
import type { LimitAllResult, LimitResult } from '../kernel/answers/results.ts'
import { whenAborted } from '../kernel/base/abort.ts'
import type { Database } from '../kernel/database/database.ts'
import { channels } from '../kernel/diagnostics.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { Timeout, timedOut } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { degraded, watched } from '../kernel/engine/layers.ts'
import { RunningTime, shortestTimeoutOf } from '../kernel/engine/within-timeout.ts'
import { own } from '../kernel/errors.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { answerTogether, reportsOf } from '../kernel/lists/limit-all.ts'
import { callsOf, combined } from '../kernel/lists/requests.ts'
import type { AllOptions, BlockOptions, PatientOptions, Requested } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { UNHURRIED } from '../shared/unhurried.ts'
import { checkSignal, type Patience, untilAllowed } from '../shared/until-allowed.ts'
import { type Attempt, attemptOf, checkWithin } from './check-within.ts'
import { isPaidByFunds } from './funds.ts'
import { giveBackUnread } from './give-back.ts'

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
  const id = await idCall(once, [each])
  const isList = id || isPaidByFunds(each)
  const [answered] = await waitFor([each], { timeoutMs, signal }, (leftMs, denial) =>
    isList ? attemptWithin(leftMs, denial, [each], id, signal) : checkWithin(leftMs, denial, each, signal),
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
  const id = await idCall(once, calls)
  const waiting = waitFor(calls, { timeoutMs, signal }, (leftMs, denial) =>
    attemptWithin(denial ? leftMs : Number.POSITIVE_INFINITY, denial, calls, id, signal),
  )
  return combined(requests, await own(waiting, signal))
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

/**
 * A check, or the last denial if the wait is over first. Then the `timeout` of the limiters ends the check no
 * more: what it charges late is given back, unless it has used an id.
 */
async function attemptWithin(
  endsInMs: number,
  denial: Attempt | undefined,
  calls: readonly LimiterCall[],
  id: LimiterCall | undefined,
  signal: AbortSignal | undefined,
): Promise<Attempt> {
  const [{ checker }] = calls as readonly [LimiterCall]
  const { bounds } = shortestTimeoutOf(calls.map(({ checker }) => checker)).alone
  const time = new RunningTime(bounds?.time ?? new Timeout(Number.POSITIVE_INFINITY))
  const answers = answerTogether(calls, time, [id]).finally(() => time.stop())
  const found = await unlessOver(answers, endsInMs, signal, () => {
    if (id) return
    time.stop()
    const deadline = UNHURRIED.time.begin(time)
    const late = answers.finally(() => deadline.stop())
    checker.alone.goOn(
      late.then(
        (answered) => giveBackUnread(calls, answered),
        () => {},
      ),
    )
  })
  if (!found && denial && !id) return denial
  // It may have waited for its own keys, so `onError: 'allow'` does not let it pass.
  return attemptOf(found ?? (await degraded(timedOut(true, true), calls)), id !== undefined)
}

/**
 * The answers, or undefined if the wait is over before they come. Rejects with the signal's reason if that
 * aborts before.
 *
 * @param onOver Called if the answers have not come by then.
 */
function unlessOver<T>(
  answers: Promise<T>,
  endsInMs: number,
  signal: AbortSignal | undefined,
  onOver: () => void,
): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      deadline.stop()
      stopSignal?.()
    }
    const endWith = (pass: () => void) => () => {
      stop()
      onOver()
      pass()
    }
    const deadline = new Timeout(endsInMs).begin({ over: endWith(() => resolve(undefined)) })
    const stopSignal =
      signal &&
      whenAborted(
        signal,
        endWith(() => reject(signal.reason)),
      )
    answers.finally(stop).then(resolve, reject)
  })
}
