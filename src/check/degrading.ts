import { RatelimitError, type RatelimitErrorCode } from '../errors.ts'
import type { Call, Namespace } from '../runtime/call.ts'
import { grantedIn, letPass, type Payment, type Reporting } from './answer.ts'
import type { Denied, LimitResult } from './results.ts'
import { tellError } from './tell-error.ts'

/** What a call answers if the database cannot. */
export interface Degrading {
  readonly onError: 'throw' | 'allow' | 'deny'
  readonly onDegraded: ((error: RatelimitError) => void) | undefined
}

/** The database was away, overloaded or too slow, or others were always ahead. */
const OUTAGES: ReadonlySet<RatelimitErrorCode> = new Set<RatelimitErrorCode>([
  'UNREACHABLE',
  'OUTCOME_UNKNOWN',
  'OVERLOADED',
  'TIMEOUT',
  'CONTENTION',
])

/**
 * Classes and codes of Postgres that say so too: insufficient resources, operator intervention, system error,
 * timeouts of a lock and of transactions, and a server that only reads.
 * https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const OUTAGE_STATE = /^(53|57|58)|^55P03$|^25(006|P03|P04)$/

/** When to ask again after a denial that the database did not make. */
const RETRY_MS = 1_000

/** What the answers of a limiter depend on. */
interface Source {
  readonly namespace: Namespace
  readonly degrading: Degrading
  readonly reporting: Reporting
}

/** An answer, and what was paid for it. */
export interface Answered {
  readonly answer: LimitResult
  readonly paid: Payment
}

/**
 * The answer to a call that failed by an outage. Other errors are thrown, and all of them with
 * `onError: 'throw'`. Each `onDegraded` is called once for all calls that share `told`.
 */
export function degraded(
  error: unknown,
  call: Call,
  { namespace, degrading: { onError, onDegraded }, reporting: { dryRun } }: Source,
  told: Set<Degrading['onDegraded']>,
): Answered {
  if (onError === 'throw' || !isOutage(error)) throw error
  if (!told.has(onDegraded)) tell(onDegraded, error)
  told.add(onDegraded)
  tellError(namespace.prefix, call, error)
  const { limiter, rate } = call
  const now = timeIn(namespace)
  const common = { limit: limiter.limit, remaining: 0, degraded: true } as const
  const paid = { rate: error.code === 'OUTCOME_UNKNOWN' ? rate : 0, windowStart: null, usedBefore: null }
  if (onError === 'allow' && !error.contended) {
    const granted = grantedIn(call, rate)
    return { answer: { ...common, success: true, reset: now, retryAfter: 0, ...granted }, paid }
  }
  const denied: Denied = { ...common, success: false, reset: now + RETRY_MS, retryAfter: RETRY_MS }
  return { answer: dryRun ? letPass(denied, call) : denied, paid }
}

/** A clock that fails must not hide what became of the call. */
function timeIn({ clock }: Namespace): number {
  try {
    return clock?.() ?? Date.now()
  } catch {
    return Date.now()
  }
}

/** A function that throws or rejects must not cost the answer, or end the process. */
async function tell(onDegraded: Degrading['onDegraded'], error: RatelimitError): Promise<void> {
  try {
    await onDegraded?.(error)
  } catch {}
}

function isOutage(error: unknown): error is RatelimitError {
  if (!(error instanceof RatelimitError)) return false
  return OUTAGES.has(error.code) || (error.code === 'DATABASE' && OUTAGE_STATE.test(error.sqlState ?? ''))
}
