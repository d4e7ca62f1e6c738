import type { Limiter, Numbers, Params, StateColumn } from './algorithm.ts'

/** A state that is advanced to a moment, and the parameters of the limiter at that moment. */
export interface Snapshot {
  readonly now: number
  readonly state: Numbers<StateColumn>
  readonly params: Params
}

/**
 * The first millisecond, now or later, at which `wanted` is available if nothing else is taken. `Infinity` if
 * never.
 *
 * It does not solve the formula for the time. It searches with the formula that decides, so it agrees with the
 * database.
 */
export function whenAvailable({ algorithm }: Limiter, snapshot: Snapshot, wanted: number): number {
  const { now, state, params } = snapshot
  const { numbers, tolerance } = algorithm
  const fits = (time: number) => numbers.available(state, time, params) + tolerance >= wanted
  if (fits(now)) return now
  if (wanted > (numbers.most?.(state, params) ?? params.limit) + tolerance) return Number.POSITIVE_INFINITY
  return firstTime(now, Math.round(numbers.guess(state, wanted, now, params)), fits)
}

/**
 * The first time after `before` at which `fits` is true. `fits` is false at `before`, and once true it stays
 * true.
 *
 * The guess is right but for rounding. From a guess that is early, the search doubles its steps. Then it halves
 * the range.
 */
function firstTime(before: number, guess: number, fits: (time: number) => boolean): number {
  // Neighbouring milliseconds are the same double that far away, so there is no first one.
  if (!Number.isSafeInteger(guess)) return Number.POSITIVE_INFINITY
  let low = before
  let high = Math.max(guess, before + 1)
  for (let step = 1; !fits(high); step *= 2) {
    low = high
    high += step
    if (!Number.isSafeInteger(high)) return Number.POSITIVE_INFINITY
  }
  if (!fits(high - 1)) return high
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2)
    if (fits(middle)) high = middle
    else low = middle
  }
  return high
}
