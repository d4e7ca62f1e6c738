import { sql } from 'drizzle-orm'
import type {
  Algorithm,
  Limiter,
  Numbers,
  Params,
  StateColumn,
  StoredLimiter,
} from '../kernel/limits/algorithm.ts'
import { limiterOf } from '../kernel/limits/limiter.ts'
import { type ColumnOf, ROWS } from '../kernel/limits/rows.ts'
import type { Paid } from '../kernel/lists/noting.ts'
import { nameIn } from './names.ts'

type Column = ColumnOf<'estimate'>
type Param = 'lengthMs' | 'facts' | 'estimate' | 'paidAt' | 'scale'

/** The latest time that a row can hold. */
const NEVER_MS = 8e15
const NEVER = sql<number>`8e15::float8`

/** Open estimates expire this long after their ends, so that no sweep deletes them and they expire in order. */
export const OPEN_MS = 4e15

/** How long the name of a settled estimate is remembered: a day from its end, or from the settlement. */
const NAME_KEPT = sql.raw(`${86_400_000}::float8`)

/** What `count` holds in addition to the facts: this many of its units are one unit of what was used before. */
const UNIT = 512
/** What was used of a bucket is a fraction, and is noted in thousandths. */
const THOUSANDTHS = 1000
/** More would not be exact. */
const MAX_BEFORE = 2 ** 42
/** What `count` holds of an estimate that is a share of one cost of several limits. */
const TOGETHER = 2 ** 52

/**
 * The row of an estimate with a name. A limit of 1 opens it, if the name is new, and a limit of 0 settles it.
 *
 * `tokens` is the estimate, and -1 less the cost when it is settled. `lastRefill` is the end, and then the time
 * until which the name is remembered. `windowStart` is the start of the window that paid, or the time at which
 * the bucket that paid is full again. `count` is never 0 and packs the rest: see {@link Opened}.
 *
 * An open estimate has the rest of all time since its end left. A settlement that asks for as much as it has
 * seen therefore does not settle another estimate of the same name, which ends later.
 */
const algorithm: Algorithm<Column, Param> = {
  name: 'estimate',
  kind: 'bucket',
  ...ROWS.estimate,
  params: ['lengthMs', 'facts', 'estimate', 'paidAt', 'scale'],
  integersOnly: true,
  tolerance: 0,

  sql: {
    now: (_row, clock) => clock,
    holds: ({ tokens, lastRefill }, clock) => sql`(${tokens} >= 0::float8 or ${lastRefill} > ${clock})`,
    fresh: (now) => ({ count: sql`0::float8`, windowStart: now, tokens: sql`0::float8`, lastRefill: now }),
    available: ({ count, tokens, lastRefill }, _now, { limit }) =>
      sql`case when ${count} <= 0::float8 then ${limit}
        when ${limit} > 0::float8 or ${tokens} < 0::float8 then 0::float8 else ${NEVER} - ${lastRefill} end`,
    used: ({ count }) => count,
    consume: ({ count, windowStart, lastRefill }, now, _available, amount) => ({
      count,
      windowStart,
      tokens: sql`-(${amount})`,
      lastRefill: sql`greatest(${lastRefill}, ${now}) + ${NAME_KEPT}`,
    }),
    note: (now, paid, { lengthMs, facts, estimate, paidAt, scale }) => ({
      count: sql`${facts} + ${paid.dryRun} * 4::float8
        + least(greatest(floor(${paid.before} * ${scale} + 0.5::float8), 0::float8), ${sql.raw(`${MAX_BEFORE}::float8`)})
          * ${sql.raw(`${UNIT}::float8`)}`,
      windowStart: sql`least(${paid.at}, ${paidAt})`,
      tokens: sql`${paid.rate} + ${estimate}`,
      lastRefill: sql`${now} + ${lengthMs}`,
    }),
    expiresAt: ({ tokens, lastRefill }) =>
      sql`case when ${tokens} >= 0::float8 then ${sql.raw(`${OPEN_MS}::float8`)} + ${lastRefill} else ${lastRefill} end`,
    wholeAt: () => NEVER,
  },
  numbers: {
    fresh: (now) => ({ count: 0, windowStart: now, tokens: 0, lastRefill: now }),
    available: ({ count, tokens, lastRefill }, _time, { limit }) => {
      if (count <= 0) return limit
      return limit > 0 || tokens < 0 ? 0 : NEVER_MS - lastRefill
    },
    used: ({ count }) => count,
    consume: (state, _now, amount) => ({ ...state, tokens: -amount }),
    guess: () => NEVER_MS,
  },
}

/** The grid on which such rows expire is a second. */
export const GRID_MS = 1000

/** Settles an open estimate. */
export const CLOSING: StoredLimiter = /* @__PURE__ */ limitOfRow(0, none())

function none(): Numbers<Param> {
  return { lengthMs: 0, facts: 0, estimate: 0, paidAt: NEVER_MS, scale: 1 }
}

/**
 * Opens an estimate that lasts so long.
 *
 * @param isTogether Whether it is a share of one cost of several limits.
 */
export function opened(
  lengthMs: number,
  { limiter, rate }: { readonly limiter: Limiter; readonly rate: number },
  hasPlan: boolean,
  isTogether: boolean,
): StoredLimiter {
  const estimate = limiter.stored || isTogether ? 0 : rate
  const isWindow = limiter.algorithm.kind === 'window'
  const about = 1 + 2 * Number(hasPlan) + 8 * Number(isWindow) + 16 * maskOf(limiter)
  const facts = isTogether ? TOGETHER + about : about
  const notesTime = limiter.stored && limiter.algorithm.sql.before !== undefined
  const scale = isWindow || notesTime ? 1 : THOUSANDTHS
  const own: Numbers<Param> = { lengthMs, facts, estimate, paidAt: NEVER_MS, scale }
  const known = lastOpened.get(limiter)
  if (known && algorithm.params.every((each) => known.params[each] === own[each])) return known
  const opening = limitOfRow(1, own)
  lastOpened.set(limiter, opening)
  return opening
}

/** What opened the last estimate of each limiter. The next one is mostly as long. */
const lastOpened = new WeakMap<Limiter, StoredLimiter>()

function limitOfRow(limit: 0 | 1, own: Numbers<Param>): StoredLimiter {
  const limiter = limiterOf(algorithm, { limit, periodMs: 0, ...own })
  return { ...limiter, noting: (paid) => noting(limiter, paid), rowIn }
}

function rowIn(row: string): { readonly key: string; readonly name: string } {
  const { key, id } = nameIn(row)
  return { key, name: id }
}

/** Opens the same estimate with what was paid as a number of its own, as if a limit without a row had paid. */
export function noting({ params }: StoredLimiter, paid: Paid): StoredLimiter {
  const { count, windowStart, tokens } = openedAt(0, params, paid)
  const { lengthMs = 0, scale = 1 } = params
  const own = { lengthMs, facts: count, estimate: tokens, paidAt: windowStart, scale }
  return limitOfRow(1, own)
}

/** The row of an estimate that was opened at that time, by the rule of `note`. */
export function openedAt(now: number, params: Params, paid: Paid): Numbers<Column> {
  const { lengthMs = 0, facts = 0, estimate = 0, paidAt = NEVER_MS, scale = 1 } = params
  const before = Math.min(Math.max(Math.floor(paid.before * scale + 0.5), 0), MAX_BEFORE)
  return {
    count: facts + paid.dryRun * 4 + before * UNIT,
    windowStart: Math.min(paid.at, paidAt),
    tokens: paid.rate + estimate,
    lastRefill: now + lengthMs,
  }
}

/** What an estimate asks for when it is settled: see `atLeast` and `rate` of a call. */
export function costOf({ endMs }: Opened, actual: number): { atLeast: number; rate: number } {
  return { atLeast: NEVER_MS - endMs, rate: 1 + actual }
}

/** An estimate as its row holds it. */
export interface Opened {
  readonly rate: number
  readonly endMs: number
  /** Whether the reservation had a limiter of its own. */
  readonly hasPlan: boolean
  /** Whether a dry run let it pass, so that nothing was charged. */
  readonly dryRun: boolean
  readonly windowStart: number | null
  readonly refundableUntil: number | null
  /** When the period that paid ends, for a calendar window. Null for other limits. */
  readonly windowEnd: number | null
  /** When the row that paid was made, if a key has several. Null for other limits. */
  readonly madeMs: number | null
  /**
   * What was used before, of a bucket to the nearest thousandth. 0 for a calendar window and a row of several,
   * which do not need it.
   */
  readonly usedBefore: number
  /** The columns of the row that was charged, sorted. Empty if there was none. */
  readonly layout: string
  /** Whether it is a share of one cost of several limits. */
  readonly isTogether: boolean
  /** Whether it was settled with this cost. */
  wasSettledWith(actual: number): boolean
  readonly isOpen: boolean
}

/** Reads the state of a row. Undefined if the name is not in use. */
export function openedIn({ count, tokens, windowStart, lastRefill }: Numbers<Column>): Opened | undefined {
  if (count <= 0) return undefined
  const bit = (value: number) => Math.floor(count / value) % 2 === 1
  const paidAt = windowStart < NEVER_MS ? windowStart : null
  const layout = COLUMNS.filter((_, place) => bit(16 * 2 ** place)).join()
  const before = Math.floor(count / UNIT) % (TOGETHER / UNIT)
  const [isCalendar, isOneOfSeveral] = [layout === CALENDAR, layout === SEVERAL]
  return {
    rate: tokens,
    endMs: lastRefill,
    hasPlan: bit(2),
    dryRun: bit(4),
    windowStart: bit(8) ? paidAt : null,
    refundableUntil: bit(8) ? null : paidAt,
    windowEnd: isCalendar ? windowStart + before : null,
    madeMs: isOneOfSeveral ? before : null,
    isTogether: bit(TOGETHER),
    usedBefore: isCalendar || isOneOfSeveral ? 0 : bit(8) ? before : before / THOUSANDTHS,
    layout,
    wasSettledWith: (actual) => tokens === -(1 + actual),
    isOpen: tokens >= 0,
  }
}

/** Rows hold the places of these, so their order must not change. */
const COLUMNS: readonly StateColumn[] = ['count', 'lastRefill', 'prevCount', 'tokens', 'windowStart']

const CALENDAR = ROWS.calendarWindow.columns.toSorted().join()
const SEVERAL = ROWS.credits.columns.toSorted().join()

function maskOf(limiter: Limiter): number {
  if (!limiter.stored) return 0
  const { columns } = limiter.algorithm
  return COLUMNS.reduce((sum, column, place) => sum + (columns.includes(column) ? 2 ** place : 0), 0)
}
