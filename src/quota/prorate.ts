import type { Limiter, Period } from '../kernel/limits/algorithm.ts'
import { checkOption } from '../kernel/options/validate.ts'

/** The limit of the period in which a plan changed. */
export interface Prorated extends Period {
  /** The limit until `end`. After that, the new plan is right. */
  readonly limiter: Limiter
  /** The part of the period that the new plan has: from 0 to 1, and above 0. For prices. */
  readonly share: number
}

/**
 * The limit of a period in which a plan changed from one calendar window to another of the same periods. `from`
 * counts for the part of the period before `at`, and `to` for the rest. What was used in the period stays used.
 *
 * @param at When the plan changed.
 * @returns The limit, whose tokens are rounded up to a whole number, and the period.
 * @throws RatelimitError `INVALID_OPTION` for limits other than two calendar windows of the same periods, for
 * windows of `Infinity`, and for an invalid date.
 *
 * @example
 * ```ts
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { prorate } from 'drizzle-ratelimit/quota'
 *
 * const [team, business] = [calendarWindow(1000, 'month'), calendarWindow(4000, 'month')]
 * const { limiter, end, share } = prorate(team, business, new Date('2026-04-11T00:00:00Z'))
 * console.log(limiter.limit) // 3000: a third of the month with 1,000, two thirds with 4,000
 * ```
 */
export function prorate(from: Limiter, to: Limiter, at: Date): Prorated {
  const time = at instanceof Date ? at.getTime() : Number.NaN
  checkOption(Math.abs(time) < MAX_TIME_MS, 'at must be a valid Date before the year 10,000.')
  checkOption(
    from?.stored &&
      to?.stored &&
      from.rows === to.rows &&
      Number.isFinite(from.limit + to.limit) &&
      to.periodAt !== undefined &&
      to.withTokens !== undefined,
    'prorate needs two calendar windows of the same periods, time zone and anchor, with a limit.',
  )
  const { start, end } = to.periodAt(time)
  const [before, after, all] = [time - start, end - time, end - start].map(BigInt) as [bigint, bigint, bigint]
  // The products are too large for doubles.
  const tokens = (BigInt(from.limit) * before + BigInt(to.limit) * after + all - 1n) / all
  return { limiter: to.withTokens(Number(tokens)), start, end, share: (end - time) / (end - start) }
}

const MAX_TIME_MS = Date.UTC(10_000)
