import { sql } from 'drizzle-orm'
import type { Algorithm, Numbers, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { limiterOf } from '../kernel/limits/limiter.ts'
import { type ColumnOf, ROWS } from '../kernel/limits/rows.ts'
import { countAfter, countNumberAfter } from '../kernel/limits/window.ts'

const NONE = sql<number>`0::float8`

/**
 * `prevCount` is the sum of all grants, `count` is the used part of it. Both are whole numbers, so they stay
 * exact, and a refund cannot give back more than was used. They do not change with time.
 *
 * `tokens` is the part of `count` that is reserved and not settled. Only settled credits cross a threshold.
 */
const algorithm: Algorithm<ColumnOf<'balance'>, never> = {
  name: 'balance',
  kind: 'bucket',
  ...ROWS.balance,
  params: [],
  integersOnly: true,
  tolerance: 0,
  settled: { now: settledNumber, most: settledNumber },

  sql: {
    now: (_row, clock) => clock,
    // A call writes both back, one of them unchanged. Other programs may have written more than a double can
    // hold.
    advance: ({ count, prevCount, lastRefill, tokens }) => ({
      count: countAfter(count, NONE),
      prevCount: countAfter(prevCount, NONE),
      lastRefill,
      tokens: countAfter(tokens, NONE),
    }),
    fresh: (now) => ({ count: NONE, prevCount: NONE, lastRefill: now, tokens: NONE }),
    available: ({ count, prevCount }) => sql`${prevCount} - ${count}`,
    used: ({ count }) => count,
    consume: ({ count, prevCount, tokens }, now, _available, amount, _params, reserved) => {
      const next = countAfter(count, amount)
      return {
        count: next,
        prevCount,
        lastRefill: now,
        // A refund that exceeds the settled part lowers the reserved part.
        tokens: sql`least(${countAfter(tokens, reserved)}, ${next})`,
      }
    },
    add: (state, now, amount) => ({
      ...state,
      prevCount: countAfter(state.prevCount, amount),
      lastRefill: now,
    }),
    capacity: ({ prevCount }) => prevCount,
    expiresAt: () => sql`8e15::float8`,
    wholeAt: () => sql`'Infinity'::float8`,
  },
  numbers: {
    fresh: (now) => ({ count: 0, prevCount: 0, lastRefill: now, tokens: 0 }),
    available: ({ count, prevCount }) => prevCount - count,
    used: ({ count }) => count,
    consume: ({ count, prevCount, tokens }, now, amount, _params, reserved) => {
      const next = countNumberAfter(count, amount)
      return {
        count: next,
        prevCount,
        lastRefill: now,
        tokens: Math.min(countNumberAfter(tokens, reserved), next),
      }
    },
    add: (state, now, amount) => ({
      ...state,
      prevCount: countNumberAfter(state.prevCount, amount),
      lastRefill: now,
    }),
    capacity: ({ prevCount }) => prevCount,
    guess: () => Number.POSITIVE_INFINITY,
  },
}

function settledNumber({ count, tokens }: Numbers<'count' | 'tokens'>): number {
  return count - tokens
}

// The limiter itself grants nothing. Each row has its own grants.
const BALANCE: StoredLimiter = {
  ...limiterOf(algorithm, { limit: 0, periodMs: 1 }),
  limit: Number.POSITIVE_INFINITY,
  windowMs: undefined,
}

/** The limit of undated credits: what was granted to a key. Its row never expires. */
export function balance(): StoredLimiter {
  return BALANCE
}
