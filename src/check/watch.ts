import type { LimitResult } from '../answers/results.ts'
import { channels } from '../diagnostics.ts'
import type { Call } from '../runtime/call.ts'
import { countDenial } from './denial-counts.ts'
import type { Parts } from './parts.ts'
import { publishError } from './publish-error.ts'

/** A call whose decision is published, and counted if it is a denial. */
export interface Watched {
  readonly parts: Parts
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

/** Publishes how calls were decided, or that they failed, and counts their denials. */
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
    for (const { parts, call } of calls) publishError(parts.rows.namespace.prefix, call, error)
    throw error
  }
}

function publish(
  { parts, call, joined }: Watched,
  { answer, rate = call.rate }: Report,
  durationMs: number,
): void {
  const { success, limit, remaining, retryAfter, degraded = false } = answer
  const wouldDeny = answer.success && answer.wouldDeny !== undefined
  // If the database did not answer, no limit has denied.
  if ((!success || wouldDeny) && !degraded) countDenial(parts, call.key)
  channels.decision?.publish({
    prefix: parts.rows.namespace.prefix,
    key: call.key,
    rate,
    success,
    limit,
    remaining,
    retryAfter,
    degraded,
    wouldDeny,
    leased: answer.success && answer.leased === true,
    joined,
    durationMs,
  })
}
