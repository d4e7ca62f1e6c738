import { Temporal } from 'temporal-polyfill'
import { lru } from 'tiny-lru'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { MAX_MS } from '../kernel/duration.ts'
import type { Period, PeriodAt } from '../kernel/limits/algorithm.ts'
import { checkOption } from '../kernel/options/validate.ts'

/** The periods of the calendar. Weeks begin on Monday. */
export type CalendarPeriod = 'minute' | 'hour' | 'day' | 'week' | 'month' | 'year'

/** Where and when the periods of a calendar begin. */
export interface CalendarOptions {
  /** The IANA time zone of the periods. Default: `'UTC'`. After a change, a key may begin a new period. */
  readonly timeZone?: string | undefined
  /**
   * The start of the first period, such as a subscription's. Default: the calendar's own periods. After a
   * change, a key may begin a new period.
   */
  readonly anchor?: Date | undefined
  /**
   * How many of the periods are one: 3 months are a quarter, 2 weeks a fortnight. A whole number of at most 60
   * minutes, 24 hours, or 100 of the others. Without an anchor they are counted from the beginning of 1970, so
   * quarters begin in January. After a change, a key may begin a new period. Default: `1`.
   */
  readonly every?: number | undefined
  /**
   * Adds what was left of the last period to the next one, at most `max` units. Default: nothing is carried
   * over.
   */
  readonly rollover?: Rollover | undefined
}

/** How much one period carries over to the next. */
export interface Rollover {
  /** A whole number from 1 to the tokens of a period. */
  readonly max: number
}

const CALENDAR_NAMES: NamesOf<CalendarOptions> = { timeZone: true, anchor: true, every: true, rollover: true }

const UNITS = { day: 'days', week: 'weeks', month: 'months', year: 'years' } as const

/** Periods that always have the same length. They do not depend on local dates. */
const LENGTHS_MS = { minute: 60_000, hour: 3_600_000 } as const

/** The most of them that are one period. More minutes are hours, and more hours are days. */
const MAX_EVERY = { minute: 60, hour: 24, day: 100, week: 100, month: 100, year: 100 } as const

const UNKNOWN_ZONE = 'timeZone must be a known IANA time zone.'

/**
 * One function for each calendar, which remembers its last periods. An application that makes its plans again
 * for each call shares them.
 */
const known = lru<PeriodAt>(1000)

/**
 * The periods of a calendar.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function periodsOf(
  period: CalendarPeriod,
  options: CalendarOptions,
): { readonly periodAt: PeriodAt; readonly name: string } {
  checkOptions(options, CALENDAR_NAMES)
  const { timeZone = 'UTC', anchor, every = 1 } = options
  checkOption(
    typeof period === 'string' && Object.hasOwn(MAX_EVERY, period),
    "The period must be 'minute', 'hour', 'day', 'week', 'month' or 'year'.",
  )
  checkOption(typeof timeZone === 'string', UNKNOWN_ZONE)
  const most = MAX_EVERY[period]
  checkOption(
    Number.isInteger(every) && every >= 1 && every <= most,
    `every must be a whole number from 1 to ${most} for periods of this kind.`,
  )
  const anchorMs = anchor === undefined ? undefined : readAnchor(anchor)
  const name = `${every} ${period} ${timeZone} ${anchorMs}`
  const periodAt = known.get(name) ?? withMemory(readPeriods(period, every, timeZone, anchorMs))
  known.set(name, periodAt)
  return { periodAt, name }
}

function readPeriods(
  period: CalendarPeriod,
  every: number,
  timeZone: string,
  anchorMs: number | undefined,
): PeriodAt {
  checkOption(isTimeZone(timeZone), UNKNOWN_ZONE)
  if (period === 'minute' || period === 'hour') {
    const lengthMs = LENGTHS_MS[period] * every
    return anchorMs === undefined ? clockPeriods(lengthMs, timeZone) : periodsFrom(anchorMs, lengthMs)
  }
  const unit = UNITS[period]
  const first = anchorMs === undefined ? ownAnchor(period) : localTime(anchorMs, timeZone)
  // Always counted from the first period, so that the 31st returns after a shorter month.
  const startOf = (n: number) => first.add({ [unit]: n * every }).toZonedDateTime(timeZone).epochMilliseconds

  return (time) => {
    let n = Math.floor(first.until(localTime(time, timeZone), { largestUnit: unit })[unit] / every)
    // Clock changes and months of different lengths can make the count wrong, so it is corrected here.
    while (startOf(n) > time) n--
    while (startOf(n + 1) <= time) n++
    return { start: startOf(n), end: startOf(n + 1) }
  }
}

/** Periods of one length, counted from the anchor. Local clocks do not matter. */
function periodsFrom(anchorMs: number, lengthMs: number): PeriodAt {
  return (time) => {
    const start = anchorMs + Math.floor((time - anchorMs) / lengthMs) * lengthMs
    return { start, end: start + lengthMs }
  }
}

/**
 * Periods that begin when local clocks show a full hour or minute, or each time after so many of them. If
 * clocks change by a part of the period, one period ends there and the next begins.
 */
function clockPeriods(lengthMs: number, timeZone: string): PeriodAt {
  const zoned = (time: number) => Temporal.Instant.fromEpochMilliseconds(time).toZonedDateTimeISO(timeZone)
  const offsetMs = (time: number) => zoned(time).offsetNanoseconds / 1e6
  return (time) => {
    const offset = offsetMs(time)
    const { start, end } = periodsFrom(-offset, lengthMs)(time)
    const isCut = (edge: number) => (offsetMs(edge) - offset) % lengthMs !== 0
    // The last change before the next moment may be at this one.
    const began = isCut(start) ? zoned(time + 1).getTimeZoneTransition('previous') : null
    const ends = isCut(end) ? zoned(time).getTimeZoneTransition('next') : null
    return { start: began?.epochMilliseconds ?? start, end: ends?.epochMilliseconds ?? end }
  }
}

/** The calendar's own periods are counted from the beginning of 1970, weeks from its first Monday. */
function ownAnchor(period: keyof typeof UNITS): Temporal.PlainDateTime {
  return Temporal.PlainDateTime.from(period === 'week' ? '1970-01-05' : '1970-01-01')
}

function localTime(time: number, timeZone: string): Temporal.PlainDateTime {
  return Temporal.Instant.fromEpochMilliseconds(time).toZonedDateTimeISO(timeZone).toPlainDateTime()
}

function isTimeZone(timeZone: string): boolean {
  try {
    // Temporal would also accept a date and time with a zone in it.
    new Intl.DateTimeFormat('en', { timeZone })
    localTime(0, timeZone)
    return true
  } catch {
    return false
  }
}

function readAnchor(anchor: Date): number {
  const time = anchor instanceof Date ? anchor.getTime() : Number.NaN
  checkOption(!Number.isNaN(time), 'anchor must be a valid Date.')
  // A time in microseconds, given by mistake, lies further away.
  checkOption(Math.abs(time - Date.now()) <= MAX_MS, 'anchor must lie within a hundred years of today.')
  return time
}

/** How many periods are remembered: this one and those next to it, and one that a refund comes back to. */
const REMEMBERED = 4

/** Remembers the last periods, because calls ask for this one and the next in turn. */
function withMemory(periodAt: PeriodAt): PeriodAt {
  let last: readonly Period[] = []
  return (time) => {
    const known = last.find(({ start, end }) => time >= start && time < end)
    if (known) return known
    const period = periodAt(time)
    last = [period, ...last.slice(0, REMEMBERED - 1)]
    return period
  }
}
