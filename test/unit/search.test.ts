import { expect, test } from 'vitest'
import { fixedWindowOf } from '../../src/kernel/limits/fixed-window.ts'
import { whenAvailable } from '../../src/kernel/limits/search.ts'

// This needs the function: the algorithms' guesses are right within a millisecond, and this is about others.

/** A limit that has one unit from a time on, and none before. */
function from(start: number, guess: number) {
  const limiter = fixedWindowOf(1, '1h')
  const { algorithm } = limiter
  const numbers = {
    ...algorithm.numbers,
    available: (_state: unknown, time: number) => (time >= start ? 1 : 0),
    guess: () => guess,
  }
  return { ...limiter, algorithm: { ...algorithm, numbers } }
}

const state = { count: 0, prevCount: 0, windowStart: 0, tokens: 0, lastRefill: 0 }

test.each([
  { guess: 1000, is: 'right' },
  { guess: 999, is: 'a little early' },
  { guess: 1001, is: 'a little late' },
  { guess: 0, is: 'much too early' },
  { guess: -1e6, is: 'before now' },
  { guess: 1e12, is: 'much too late' },
])('the search finds the first time, whatever the guess is: $is', ({ guess }) => {
  const limiter = from(1000, guess)
  expect(whenAvailable(limiter, { now: 10, state, params: limiter.params }, 1)).toBe(1000)
})

test('the search finds no time if nothing is available by 2^53', () => {
  const limiter = from(2 ** 60, 1000)
  expect(whenAvailable(limiter, { now: 10, state, params: limiter.params }, 1)).toBe(Number.POSITIVE_INFINITY)
})
