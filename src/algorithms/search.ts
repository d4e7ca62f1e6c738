import type { Limiter, Numbers, Params, StateColumn } from './algorithm.ts'

/** A state that is advanced to a moment, and the limiter's parameters then. */
export interface Snapshot {
  readonly now: number
  readonly state: Numbers<StateColumn>
  readonly params: Params
}

/**
 * The first millisecond from now on at which `wanted` is available if nothing else is taken; `Infinity` if
 * never.
 *
 * The search uses the formula that decides and solves nothing for the time, so it agrees with the database.
 */
export function whenAvailable({ algorithm }: Limiter, snapshot: Snapshot, wanted: number): number {
  const { now, state, params } = snapshot
  const { numbers, tolerance } = algorithm
  const fits = (time: number) => numbers.available(state, time, params) + tolerance >= wanted
  if (fits(now)) return now
  if (wanted > params.limit + tolerance) return Number.POSITIVE_INFINITY
  return firstTime(now, Math.round(numbers.guess(state, wanted, now, params)), fits)
}

/**
 * The first time after `before` at which `fits` says yes. It says no at `before`, and once it says yes it keeps
 * saying yes.
 *
 * It starts at the guess and doubles its steps until the answer changes. Then it halves the range between.
 */
function firstTime(before: number, guess: number, fits: (time: number) => boolean): number {
  // A double cannot tell two milliseconds apart there, so there is no first one.
  if (!Number.isSafeInteger(guess)) return Number.POSITIVE_INFINITY
  let low = before
  let high = Math.max(guess, before + 1)
  for (let step = 1; !fits(high); step *= 2) {
    low = high
    high += step
    if (!Number.isSafeInteger(high)) return Number.POSITIVE_INFINITY
  }
  for (let step = 1; high - step > low; step *= 2) {
    if (!fits(high - step)) {
      low = high - step
      break
    }
    high -= step
  }
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2)
    if (fits(middle)) high = middle
    else low = middle
  }
  return high
}
