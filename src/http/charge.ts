import type { LimitResult } from '../kernel/answers/results.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { Once } from '../kernel/options/calls.ts'
import { limitAll } from '../limit-all.ts'
import { type CostingRequest, limitOf } from './read-limit.ts'

const reserving = /* @__PURE__ */ onFirstUse(() => import('../estimates/reserve-calls.ts'))

/** The answers to a request's checks, and how to settle their charges. */
export interface ChargedRequest {
  readonly results: readonly LimitResult[]
  /** Keeps the charges. Only for limits that keep a reserved amount. */
  commit?(): Promise<unknown>
  /** Gives the charges back. */
  release?(): Promise<unknown>
}

/** Charges the cost of a request to all its limits, or to none. */
export async function charge(
  requests: readonly CostingRequest[],
  once: Once | undefined,
): Promise<ChargedRequest> {
  const [request, ...others] = requests
  if (!request) return { results: [] }
  if (others.length > 0) return limitAll(requests, { once })
  const { ratelimit, key, ...options } = request
  return { results: [await ratelimit.limit(key, { ...options, once })] }
}

/** The same as a reservation, to be settled when it is known whether the request counts. */
export async function reserve(requests: readonly CostingRequest[]): Promise<ChargedRequest> {
  const [request, ...others] = requests
  if (!request) return { results: [] }
  if (others.length > 0) return reserveSeveral(requests)
  const { ratelimit, key, ...options } = request
  const reserved = await ratelimit.reserve(key, options)
  if (!reserved.success) return { results: [reserved] }
  const { commit, release, ...answer } = reserved
  return {
    results: [answer],
    ...(keepsReserved(request, answer) && { commit: () => commit(request.rate) }),
    release: () => release(),
  }
}

async function reserveSeveral(requests: readonly CostingRequest[]): Promise<ChargedRequest> {
  const { reserveCalls } = await reserving()
  const reserved = await reserveCalls(requests, {})
  const { success, results } = reserved
  if (!success) return { results }
  const isKept = requests.some((request, place) => keepsReserved(request, results[place]))
  return {
    results,
    ...(isKept && { commit: () => reserved.commit(requests.map(({ rate }) => rate)) }),
    release: () => reserved.release(),
  }
}

/**
 * Whether the row keeps the cost as reserved until it is settled, as calendar windows and undated credits do.
 * During an outage, nothing is reserved.
 */
function keepsReserved(
  { ratelimit, limiter = limitOf(ratelimit) }: CostingRequest,
  result?: LimitResult,
): boolean {
  return limiter.algorithm.settled !== undefined && !result?.degraded
}
