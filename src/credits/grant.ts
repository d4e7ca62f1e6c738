import { sql } from 'drizzle-orm'
import type { Algorithm, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { limiterOf } from '../kernel/limits/limiter.ts'
import { type ColumnOf, ROWS } from '../kernel/limits/rows.ts'
import { countAfter, countNumberAfter } from '../kernel/limits/window.ts'
import { balance } from './balance.ts'
import { rowIn } from './keys.ts'

type Column = ColumnOf<'credits'>
type Param = 'endMs' | 'forMs' | 'priority' | 'keepMs' | 'madeMs'

/** The end of a grant that never ends: the latest time that a row can hold. */
export const NEVER_MS = 8e15

/** For calls on grants of any age. No grant was made then. */
const ANY_TIME = -1
const ANY_TIME_SQL = sql.raw(`${ANY_TIME}::float8`)

/**
 * One grant of credits. `prevCount` is what was granted, `count` the used part of it, `windowStart` the end,
 * and `lastRefill` the time of the grant. `tokens` is the priority; below 0 the grant is voided.
 *
 * A grant only fills a new row, so a repeated grant changes nothing. A block of no length voids a grant: it
 * ends now. The id of a grant that was swept may be granted again: of a grant that was not made at `madeMs`,
 * nothing is used that could be given back.
 */
const algorithm: Algorithm<Column, Param> = {
  name: 'credits',
  kind: 'bucket',
  ...ROWS.credits,
  params: ['endMs', 'forMs', 'priority', 'keepMs', 'madeMs'],
  hasSeveralRows: true,
  integersOnly: true,
  tolerance: 0,

  sql: {
    now: (_row, clock) => clock,
    fresh: (now, { endMs, forMs, priority }) => ({
      count: sql`0::float8`,
      prevCount: sql`0::float8`,
      windowStart: sql`least(${endMs}, ${now} + ${forMs})`,
      tokens: priority,
      lastRefill: now,
    }),
    available: ({ count, prevCount, windowStart }, now) =>
      sql`case when ${windowStart} > ${now} then ${prevCount} - ${count} else 0::float8 end`,
    used: ({ count, windowStart, lastRefill }, now, { madeMs }) =>
      sql`case when ${windowStart} > ${now} and ${madeMs} in (${ANY_TIME_SQL}, ${lastRefill}) then ${count} else 0::float8 end`,
    consume: (state, _now, _available, amount) => ({ ...state, count: countAfter(state.count, amount) }),
    before: ({ lastRefill }) => lastRefill,
    add: (state, _now, amount) => ({
      ...state,
      prevCount: sql`case when ${state.prevCount} > 0::float8 then ${state.prevCount} else ${amount} end`,
    }),
    block: (state, now, lengthMs) => ({
      ...state,
      windowStart: sql`least(${state.windowStart}, ${now} + ${lengthMs})`,
      tokens: sql`case when ${state.windowStart} > ${now} then -1::float8 - ${state.tokens} else ${state.tokens} end`,
    }),
    capacity: ({ prevCount }) => prevCount,
    expiresAt: ({ windowStart }, { keepMs }) => sql`${windowStart} + ${keepMs}`,
    wholeAt: () => sql`'Infinity'::float8`,
  },
  numbers: {
    fresh: (now, { endMs, forMs, priority }) => ({
      count: 0,
      prevCount: 0,
      windowStart: Math.min(endMs, now + forMs),
      tokens: priority,
      lastRefill: now,
    }),
    available: ({ count, prevCount, windowStart }, time) => (windowStart > time ? prevCount - count : 0),
    used: ({ count, windowStart, lastRefill }, now, { madeMs }) =>
      windowStart > now && [ANY_TIME, lastRefill].includes(madeMs) ? count : 0,
    consume: (state, _now, amount) => ({ ...state, count: countNumberAfter(state.count, amount) }),
    add: (state, _now, amount) => ({ ...state, prevCount: state.prevCount > 0 ? state.prevCount : amount }),
    capacity: ({ prevCount }) => prevCount,
    before: ({ lastRefill }) => lastRefill,
    guess: () => Number.POSITIVE_INFINITY,
  },
}

/** The terms of a grant. */
export interface Terms {
  readonly priority: number
  /** The end, in Unix milliseconds. */
  readonly endMs: number
  /** How long the grant lasts from now on, if it ends sooner then. */
  readonly forMs: number
}

/** For calls on grants that were made before: the row has its terms. */
const KNOWN: Terms = { priority: 0, endMs: NEVER_MS, forMs: NEVER_MS }

/** A grid of an hour, because the end of a row never changes. */
const PERIOD_MS = 8 * 3_600_000

/**
 * The limit of the row of a grant that was made before.
 *
 * @param keepMs How long the row is kept after the end of the grant.
 */
export function grantOfAnyAge(keepMs: number): StoredLimiter {
  return limiterWith(keepMs, KNOWN)
}

/** The limit of the row of a grant that was made then: a younger one with the same id gets nothing back. */
export function limiterOfAge({ params }: StoredLimiter, madeMs: number): StoredLimiter {
  const { keepMs = 0 } = params
  return limiterWith(keepMs, KNOWN, { madeMs })
}

let lastGrant = 0

/** The limit of a new grant's row. No two such calls are equal, because their amounts would be added up. */
export function newGrant({ params }: StoredLimiter, terms: Terms): StoredLimiter {
  const { keepMs = 0 } = params
  return limiterWith(keepMs, terms, { name: String(++lastGrant) })
}

function limiterWith(
  keepMs: number,
  terms: Terms,
  { name = '', madeMs = ANY_TIME }: { readonly name?: string; readonly madeMs?: number } = {},
): StoredLimiter {
  const limiter = limiterOf(algorithm, { limit: 0, periodMs: PERIOD_MS, keepMs, madeMs, ...terms }, { name })
  return { ...limiter, limit: Number.POSITIVE_INFINITY, windowMs: undefined, rowIn }
}

/** The limit of all grants of a key together. Its state is their sum, and as such it is a balance. */
export const ALL_GRANTS: StoredLimiter = {
  ...balance(),
  algorithm: { ...balance().algorithm, name: 'all grants' },
  signature: 'all grants',
}
