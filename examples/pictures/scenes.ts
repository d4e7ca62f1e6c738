import { type Limiter, Ratelimit } from 'drizzle-ratelimit'
import type { Scene } from './traffic.ts'

/** Ten calls in ten seconds, in the words of each algorithm. */
const TEN_IN_TEN_SECONDS: Readonly<Record<string, Limiter>> = {
  "fixedWindow(10, '10s')": Ratelimit.fixedWindow(10, '10s'),
  "slidingWindow(10, '10s')": Ratelimit.slidingWindow(10, '10s'),
  "tokenBucket(5, '5s', 10)": Ratelimit.tokenBucket(5, '5s', 10),
  "tokenBucket(5, '5s', 10, { refill: 'continuous' })": Ratelimit.tokenBucket(5, '5s', 10, {
    refill: 'continuous',
  }),
  "gcra(10, '10s', { burst: 2 })": Ratelimit.gcra(10, '10s', { burst: 2 }),
}

/** The scenes that docs/algorithms.md shows. */
export const SCENES: readonly Scene[] = [
  {
    file: 'algorithms-burst.svg',
    title: 'A burst',
    about: 'one call at 0 s, then five calls a second from 8 s to 20 s',
    limiters: TEN_IN_TEN_SECONDS,
    calls: [0, ...every(200, 8000, 20_000)],
    untilMs: 24_000,
    lookEveryMs: 500,
  },
  {
    file: 'algorithms-steady.svg',
    title: 'Steady traffic above the limit',
    about: 'five calls in three seconds, all the time; the limit is about three',
    limiters: TEN_IN_TEN_SECONDS,
    calls: every(600, 0, 30_000),
    untilMs: 30_000,
    lookEveryMs: 600,
  },
  {
    file: 'algorithms-poll.svg',
    title: 'A client that polls',
    about: 'ten calls at once, then one every 500 ms, whatever the answer is',
    limiters: TEN_IN_TEN_SECONDS,
    calls: [...times(10, 0), ...every(500, 500, 30_000)],
    untilMs: 30_000,
    lookEveryMs: 500,
  },
  {
    file: 'algorithms-fade.svg',
    title: 'Three calls in ten seconds, all used at once',
    about: 'four calls at 0 s, then one each at 5, 9, 10, 11, 12, 13 and 13.334 s',
    limiters: {
      "slidingWindow(3, '10s')": Ratelimit.slidingWindow(3, '10s'),
      "fixedWindow(3, '10s')": Ratelimit.fixedWindow(3, '10s'),
      "tokenBucket(3, '10s', 3, { refill: 'continuous' })": Ratelimit.tokenBucket(3, '10s', 3, {
        refill: 'continuous',
      }),
    },
    calls: [...times(4, 0), 5000, 9000, 10_000, 11_000, 12_000, 13_000, 13_334],
    untilMs: 32_000,
    lookEveryMs: 500,
  },
]

function every(stepMs: number, from: number, to: number): number[] {
  return Array.from({ length: (to - from) / stepMs + 1 }, (_, i) => from + i * stepMs)
}

function times(count: number, time: number): number[] {
  return Array.from({ length: count }, () => time)
}
