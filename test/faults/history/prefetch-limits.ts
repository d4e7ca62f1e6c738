import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'

/** A limit, and the most that it grants without prefetch in a time. */
export interface PrefetchLimit {
  readonly prefix: string
  readonly limiter: Limiter
  readonly most: number
  /** How much comes back in a millisecond. Undefined if nothing does before the window ends. */
  readonly perMs?: number
  readonly periodMs?: number
  readonly durable?: true
}

export const prefetchLimits: readonly PrefetchLimit[] = [
  { prefix: 'short window', limiter: Ratelimit.fixedWindow(60, 150), most: 60, periodMs: 150 },
  { prefix: 'window', limiter: Ratelimit.fixedWindow(300, '1s'), most: 300, periodMs: 1_000 },
  { prefix: 'year', limiter: calendarWindow(1_000_000, 'year'), most: 1_000_000, durable: true },
  { prefix: 'small year', limiter: calendarWindow(400, 'year'), most: 400 },
  { prefix: 'bucket', limiter: Ratelimit.tokenBucket(20, 100, 200), most: 220, perMs: 0.2 },
  { prefix: 'gcra', limiter: Ratelimit.gcra(200, '1s', { burst: 200 }), most: 200, perMs: 0.2 },
  // A window's limit at its end, and what fades meanwhile.
  { prefix: 'sliding', limiter: Ratelimit.slidingWindow(200, '1s'), most: 201, perMs: 0.2 },
]
