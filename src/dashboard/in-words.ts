import type { Limiter, Numbers } from '../kernel/limits/algorithm.ts'
import { inDigits, inLength, inRule } from '../shared/readable.ts'

type Words = (limit: string, params: Numbers<string>) => string

/** The rule of each algorithm in words. A limit of the calendar has the period that holds the time. */
const WORDS: Readonly<Record<string, Words>> = {
  unlimited: () => 'no limit',
  fixedWindow: (limit, { periodMs = 0 }) => `${limit} in ${inLength(periodMs)}`,
  tokenBucket: (limit, { refillRate = 0, intervalMs = 0 }) =>
    `${inRule(refillRate)} every ${inLength(intervalMs)}, burst ${limit}`,
  gcra: (limit, { unitMs = 0 }) => `one every ${inLength(unitMs)}, burst ${limit}`,
  lockout: (limit, { periodMs = 0, blockMs = 0, factor = 1, maxMs = 0 }) =>
    `${limit} failures in ${inLength(periodMs)} block for ${inLength(blockMs)}${factor > 1 ? `, then longer, up to ${inLength(maxMs)}` : ''}`,
  balance: () => 'what was granted',
}

/**
 * The rule of a limit in words: `5 every 10 s, burst 20`.
 *
 * @param now The time that a limit of the calendar is described for.
 * @param inTime Writes a time.
 */
export function inWords(limiter: Limiter, now: number, inTime: (time: number) => string): string {
  const { algorithm, limit, params } = limiter
  const units = Number.isFinite(limit) ? inDigits(limit) : 'any number'
  const own = WORDS[algorithm.name]
  if (own) return own(units, params)
  if (limiter.stored && limiter.periodAt) {
    const { start, end } = limiter.periodAt(now)
    return `${units} from ${inTime(start)} to ${inTime(end)}`
  }
  return `${units} in any ${inLength(params.periodMs)}`
}
