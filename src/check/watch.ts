import { channels } from '../diagnostics.ts'
import type { Call } from '../runtime/call.ts'
import type { LimitResult } from './results.ts'
import { tellError } from './tell-error.ts'

/** A call that somebody may watch. */
export interface Watched {
  readonly prefix: string
  readonly call: Call
  /** Whether it runs in a transaction of the caller's. */
  readonly joined: boolean
}

/** What is told of an answer. */
export interface Told {
  readonly answer: LimitResult
  /** Default: what the call asked for. */
  readonly rate?: number | undefined
}

/** Tells those who listen how calls were decided, or that they failed. */
export async function watch<T>(
  calls: readonly Watched[],
  answered: Promise<T>,
  toldOf: (answered: T) => readonly Told[],
): Promise<T> {
  const startedAt = performance.now()
  try {
    const found = await answered
    const durationMs = performance.now() - startedAt
    for (const [place, told] of toldOf(found).entries()) {
      const each = calls[place]
      if (each) tell(each, told, durationMs)
    }
    return found
  } catch (error) {
    for (const { prefix, call } of calls) tellError(prefix, call, error)
    throw error
  }
}

function tell(
  { prefix, call, joined }: Watched,
  { answer, rate = call.rate }: Told,
  durationMs: number,
): void {
  const { success, limit, remaining, retryAfter, degraded = false } = answer
  const wouldDeny = answer.success && answer.wouldDeny !== undefined
  channels.decision?.publish({
    prefix,
    key: call.key,
    rate,
    success,
    limit,
    remaining,
    retryAfter,
    degraded,
    wouldDeny,
    joined,
    durationMs,
  })
}
