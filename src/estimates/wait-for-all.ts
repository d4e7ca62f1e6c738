import type { Answered } from '../kernel/answers/answer.ts'
import type { LimitAllResult } from '../kernel/answers/results.ts'
import { whenAborted } from '../kernel/base/abort.ts'
import { own } from '../kernel/base/own.ts'
import { channels } from '../kernel/diagnostics.ts'
import { parseDuration } from '../kernel/duration.ts'
import { CallTime, Timeout } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { watched } from '../kernel/engine/layers.ts'
import { checkSignal, untilAllowed } from '../kernel/engine/until-allowed.ts'
import { callsOf } from '../kernel/lists/calls-of.ts'
import { combined, retryAfterAll } from '../kernel/lists/combined.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { answerTogether, reportsOf } from '../kernel/lists/limit-all.ts'
import { limitRequest } from '../kernel/options/call-table.ts'
import type { AllOptions, PatientOptions, Requested } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { settle } from './settle.ts'
import { chargedBy } from './settlement.ts'

// `blockUntilReady` is loaded together with it: for a chunk that only a function loads which a bundle leaves
// out, Rolldown writes a second file in spite of `codeSplitting: false`.
export { blockUntilReady } from '../kernel/engine/block.ts'

/**
 * Checks again until all calls are allowed, or until the time is over. A check that is under way at its end, or
 * when the signal aborts, goes on alone, and what it has charged is given back. An id that it has used stays
 * used, so its charge stays too: the call can be repeated with that id.
 *
 * @throws RatelimitError `INVALID_DURATION`, `INVALID_OPTION`
 */
export async function waitForAll<Request extends Requested>(
  requests: readonly Request[],
  { wait, signal, once, tx }: AllOptions & PatientOptions,
): Promise<LimitAllResult<Request>> {
  const timeoutMs = parseDuration(wait, 'wait', 0)
  checkSignal(signal)
  const calls = await callsOf(requests, limitRequest)
  const isJoined = calls.some(({ checker }) => checker.joined(tx))
  checkOption(!isJoined, 'limitAll cannot wait inside a transaction.')
  const ids = [await idCall(once, calls)]
  const late = (answers: Promise<Answered[]>) => (once ? undefined : giveBackLate(calls, answers))
  const check = async (leftMs: number, denial: Attempt | undefined) => {
    const answers = answerTogether(calls, undefined, ids)
    const found = await unlessOver(answers, denial ? leftMs : Number.POSITIVE_INFINITY, signal, late)
    return found ? attemptOf(found) : (denial as Attempt)
  }
  const onWait = (waitMs: number, { answered }: Attempt) => {
    for (const [place, { checker, call }] of calls.entries()) {
      const { prefix } = checker.rows.namespace
      if (!answered[place]?.answer.success) channels.wait?.publish({ prefix, key: call.key, waitMs })
    }
  }
  const waiting = async () => (await untilAllowed({ timeoutMs, signal }, check, onWait)).answered
  return combined(requests, await own(watched(calls, undefined, waiting, reportsOf)))
}

interface Attempt {
  readonly answered: Answered[]
  readonly success: boolean
  readonly retryAfter: number
}

function attemptOf(answered: Answered[]): Attempt {
  const success = answered.every(({ answer }) => answer.success)
  return { answered, success, retryAfter: retryAfterAll(answered) }
}

/**
 * The answers, or undefined if the time is over before they come. Rejects with the signal's reason if that
 * aborts before.
 *
 * @param late Gets the answers if they come after that.
 */
export function unlessOver<T>(
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

/** Gives back what calls charge whose answers nobody waits for. So it has no timeout. */
export function giveBackLate(calls: readonly LimiterCall[], answers: Promise<Answered[]>): void {
  const [{ checker }] = calls as readonly [LimiterCall]
  const givingBack = async () => {
    const answered = await answers
    const charged = calls
      .map((each, place) => chargedBy(each, answered[place] as Answered, false))
      .filter(({ estimate }) => estimate.paid.rate > 0)
    const costs = { each: charged.map(() => 0) }
    const unhurried = new CallTime(new Timeout(Number.POSITIVE_INFINITY))
    if (charged.length > 0) await settle(charged, { costs }, unhurried)
  }
  checker.alone.goOn(givingBack().catch(() => {}))
}
