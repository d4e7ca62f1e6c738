import { type Answered, AnswerTo, grantedIn, letPass } from '../answers/answer.ts'
import { allowedWith, unavailable } from '../answers/made.ts'
import { isRequest, paidWith, unlimitedOutcome } from '../answers/outcome.ts'
import { quietly, RatelimitError, type RatelimitErrorCode } from '../errors.ts'
import type { Call, Namespace } from '../store/call.ts'
import type { LimiterCall } from './checker.ts'
import type { Parts } from './parts.ts'
import { publishError } from './watch.ts'

/** The database was unreachable, overloaded or too slow, or other calls were always faster. */
const OUTAGES: ReadonlySet<RatelimitErrorCode> = new Set<RatelimitErrorCode>([
  'UNREACHABLE',
  'OUTCOME_UNKNOWN',
  'OVERLOADED',
  'TIMEOUT',
  'CONTENTION',
])

/**
 * Classes and codes of Postgres that mean the same: insufficient resources, operator intervention, system
 * error, timeouts of a lock and of transactions, and a read-only server.
 * https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const OUTAGE_STATE = /^(53|57|58)|^55P03$|^25(006|P03|P04)$/

/**
 * The answers to calls that failed together by an outage, which does not concern calls without a limit. Other
 * errors are thrown, and all errors if one of the limiters throws, because answers of the others would be
 * useless. Each `onDegraded` is called once.
 */
export function degrade(error: unknown, calls: readonly LimiterCall[]): Answered[] {
  const throws = calls.some(({ checker }) => checker.alone.degrading.onError === 'throw')
  if (throws || !isOutage(error)) throw error
  const failed = calls.filter(({ call }) => isRequest(call))
  const toNotify = new Set(failed.map(({ checker }) => checker.alone.degrading.onDegraded))
  for (const onDegraded of toNotify) quietly(() => onDegraded?.(error))
  for (const { checker } of failed) checker.circuit.degraded = (checker.circuit.degraded ?? 0) + 1
  return calls.map(({ checker, call }) =>
    isRequest(call)
      ? answerBy(error, call, checker)
      : new AnswerTo(unlimitedOutcome(call, timeIn(checker.rows.namespace)), checker.terms.reporting),
  )
}

/** The answer by `onError`. */
function answerBy(error: RatelimitError, call: Call, parts: Parts): Answered {
  const { namespace } = parts.rows
  const { reporting } = parts.terms
  const { degrading } = parts.alone
  publishError(parts, call, error)
  const { limiter, rate } = call
  const now = timeIn(namespace)
  const paid = paidWith(error.code === 'OUTCOME_UNKNOWN' ? rate : 0)
  if (degrading.onError === 'allow' && !error.contended) {
    const allowed = allowedWith(limiter.limit, 0, now)
    return { answer: { ...allowed, degraded: true, ...grantedIn(call, rate) }, paid }
  }
  const denied = unavailable(limiter, now)
  return { answer: reporting.dryRun ? letPass(denied, call) : denied, paid }
}

/** The time. A clock that fails must not hide the result of the call. */
function timeIn({ clock }: Namespace): number {
  try {
    return clock?.() ?? Date.now()
  } catch {
    return Date.now()
  }
}

function isOutage(error: unknown): error is RatelimitError {
  if (!(error instanceof RatelimitError)) return false
  return OUTAGES.has(error.code) || (error.code === 'DATABASE' && OUTAGE_STATE.test(error.sqlState ?? ''))
}
