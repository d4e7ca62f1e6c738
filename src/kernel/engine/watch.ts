import type { Allowed, LimitResult } from '../answers/results.ts'
import { channels, type DecisionMessage, type ErrorMessage } from '../diagnostics.ts'
import { quietly, RatelimitError } from '../errors.ts'
import type { Call } from '../store/call.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'
import type { Parts } from './parts.ts'

/** A call whose decision is published. */
export interface Watched {
  readonly checker: Checker
  readonly call: Pick<Call, 'key' | 'rate'>
}

/** The published part of a decision. */
export interface Report {
  readonly answer: Pick<LimitResult, 'success' | 'limit' | 'remaining' | 'retryAfter' | 'degraded'> &
    Pick<Allowed, 'wouldDeny' | 'prefetched'>
  /** Default: the rate of the call. */
  readonly rate?: number | undefined
}

/** Publishes how calls were decided, or that they failed. */
export async function watch<T>(
  calls: readonly Watched[],
  tx: At,
  decide: () => Promise<T>,
  reportsOf: (answered: T) => readonly Report[],
): Promise<T> {
  const joined = calls[0]?.checker.joined(tx) !== undefined
  const startedAt = performance.now()
  try {
    const found = await decide()
    const durationMs = performance.now() - startedAt
    for (const [place, report] of reportsOf(found).entries()) {
      const each = calls[place]
      if (each) publish(each, report, { durationMs, joined })
    }
    return found
  } catch (error) {
    for (const { checker, call } of calls) publishError(checker, call, error)
    throw error
  }
}

function publish(
  { checker, call }: Watched,
  { answer, rate = call.rate }: Report,
  how: { readonly joined: boolean; readonly durationMs: number },
): void {
  const { success, limit, remaining, retryAfter, degraded = false, prefetched = false } = answer
  const decision: DecisionMessage = {
    prefix: checker.rows.namespace.prefix,
    key: call.key,
    rate,
    success,
    limit,
    remaining,
    retryAfter,
    degraded,
    wouldDeny: answer.wouldDeny !== undefined,
    prefetched,
    ...how,
  }
  channels.decision?.publish(decision)
  for (const layer of checker.terms.layers) quietly(() => layer.decided?.(decision))
}

/** Publishes that a call failed, or that `onError` answered it. */
export function publishError({ rows, terms }: Parts, { key }: Pick<Call, 'key'>, error: unknown): void {
  if (!(error instanceof RatelimitError)) return
  const failure: ErrorMessage = { prefix: rows.namespace.prefix, key, error }
  channels.error?.publish(failure)
  for (const layer of terms.layers) quietly(() => layer.failed?.(failure))
}
