import { channels } from '../diagnostics.ts'
import { RatelimitError } from '../errors.ts'
import type { Call } from '../runtime/call.ts'
import type { LimitResult } from './results.ts'

/** A call whose decision is published. */
export interface Watched {
  readonly prefix: string
  readonly call: Call
  /** Whether it runs in a caller's transaction. */
  readonly joined: boolean
}

/** The published part of a decision. */
export interface Report {
  readonly answer: LimitResult
  /** Default: the rate of the call. */
  readonly rate?: number | undefined
}

/** Publishes how calls were decided, or that they failed. */
export async function watch<T>(
  calls: readonly Watched[],
  answered: Promise<T>,
  reportsOf: (answered: T) => readonly Report[],
): Promise<T> {
  const startedAt = performance.now()
  try {
    const found = await answered
    const durationMs = performance.now() - startedAt
    for (const [place, report] of reportsOf(found).entries()) {
      const each = calls[place]
      if (each) publish(each, report, durationMs)
    }
    return found
  } catch (error) {
    for (const { prefix, call } of calls) publishError(prefix, call, error)
    throw error
  }
}

function publish(
  { prefix, call, joined }: Watched,
  { answer, rate = call.rate }: Report,
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

/** Publishes that a call failed, or that `onError` answered it. */
export function publishError(prefix: string, { key }: Call, error: unknown): void {
  if (error instanceof RatelimitError) channels.error?.publish({ prefix, key, error })
}
