import type { LimitResult } from '../check/results.ts'
import { type LimitRequest, Ratelimit } from '../ratelimit.ts'
import type { CostingRequest } from './read-limit.ts'

/** The answers to a request's checks, and how to settle what they have charged. */
export interface Charged {
  readonly results: readonly LimitResult[]
  /** Says that the cost stays. Only for limits that keep apart what is reserved. */
  commit?(): Promise<unknown>
  /** Gives all of it back. */
  release?(): Promise<unknown>
}

/** Charges what a request costs, all or nothing. */
export async function charge(requests: readonly CostingRequest[]): Promise<Charged> {
  const [request, ...others] = requests
  if (!request) return { results: [] }
  if (others.length > 0) return Ratelimit.limitAll(requests)
  const { ratelimit, key, ...options } = request
  return { results: [await ratelimit.limit(key, options)] }
}

/** The same, to be settled when it is known whether the request counts. */
export async function reserve(requests: readonly CostingRequest[]): Promise<Charged> {
  const [request, ...others] = requests
  if (!request) return { results: [] }
  if (others.length > 0) return reserveAll(requests)
  const { ratelimit, key, ...options } = request
  const reserved = await ratelimit.reserve(key, options)
  if (!reserved.success) return { results: [reserved] }
  // The text settles the request, and has the key in it.
  const { commit, release, toString: text, ...answer } = reserved
  return {
    results: [answer],
    ...(keepsReserved(request, answer) && { commit: () => commit(request.rate) }),
    release: () => release(),
  }
}

async function reserveAll(requests: readonly CostingRequest[]): Promise<Charged> {
  const reserved = await Ratelimit.reserveAll(requests)
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
 * Whether the row would go on to count the cost as reserved, as the calendar's do. Nothing is reserved in an
 * outage.
 */
function keepsReserved(
  { ratelimit, limiter = ratelimit.limiter }: LimitRequest,
  result?: LimitResult,
): boolean {
  return limiter.algorithm.settled !== undefined && !result?.degraded
}
