import fc from 'fast-check'
import { DateTime, IANAZone } from 'luxon'
import { describe, expect, test } from 'vitest'
import { type CalendarPeriod, periodsOf } from '../../../src/calendar/periods.ts'
import type { Period, PeriodAt } from '../../../src/kernel/limits/algorithm.ts'
import { runs } from '../../support/runs.ts'

// Slow: a thousand periods, each worked out twice. Each would take several calls through a limiter, so this
// asks for the periods themselves. behaviour/answers/calendar-window tests what a limiter does with them.

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
const FROM_MS = Date.UTC(1970, 0)
const TO_MS = Date.UTC(2100, 0)

const zones = [
  'UTC',
  'Europe/Berlin',
  'America/New_York',
  // Midnights that came twice.
  'America/Havana',
  // Midnights that did not exist.
  'America/Sao_Paulo',
  'America/Asuncion',
  // Just after midnight clocks went back to the day before.
  'America/St_Johns',
  // Half and quarter hours.
  'Asia/Kolkata',
  'Asia/Kathmandu',
  'Asia/Tehran',
  // Half an hour is skipped and repeated, in the south.
  'Australia/Lord_Howe',
  'Australia/Sydney',
  'Pacific/Auckland',
  'Pacific/Chatham',
  // Whole days that did not exist.
  'Pacific/Apia',
  'Pacific/Kwajalein',
  // Back for a month each year.
  'Africa/Casablanca',
  // Three quarters of an hour and thirty seconds behind.
  'Africa/Monrovia',
] as const

/** Days of a period in the mean: enough to guess how many have passed. */
const DAYS = { day: 1, week: 7, month: 30.436875, year: 365.2425 } as const
const UNITS = { day: 'days', week: 'weeks', month: 'months', year: 'years' } as const

// The independent calendar. Local dates and times are numbers too: the Unix milliseconds at which UTC has them.
// Luxon counts on with them, and knows each zone's offset at a time; of two times, or none, that a local one
// may mean it promises nothing.

type LongPeriod = keyof typeof UNITS

interface Calendar {
  readonly zone: string
  readonly period: CalendarPeriod
  readonly every: number
  readonly anchor: number | undefined
}

function offsetAt(zone: string, time: number): number {
  return IANAZone.create(zone).offset(time) * MINUTE_MS
}

function localAt(zone: string, time: number): number {
  return time + offsetAt(zone, time)
}

/** When clocks show it first; where they skip it, the time at which they would have shown it. */
function timeOf(zone: string, local: number): number {
  // No clock is as far from UTC.
  const before = offsetAt(zone, local - 26 * HOUR_MS)
  const after = offsetAt(zone, local + 26 * HOUR_MS)
  const showing = [local - before, local - after].filter((time) => localAt(zone, time) === local)
  return showing.length > 0 ? Math.min(...showing) : local - before
}

function later(local: number, period: LongPeriod, n: number): number {
  return DateTime.fromMillis(local, { zone: 'utc' })
    .plus({ [UNITS[period]]: n })
    .toMillis()
}

/** Hours and minutes: from where clocks show a full one, and from where they are changed by a part of one. */
function shortPeriodOf({ zone, period, every, anchor }: Calendar, time: number): Period {
  const length = (period === 'hour' ? HOUR_MS : MINUTE_MS) * every
  const origin = anchor ?? -offsetAt(zone, time)
  const full = origin + Math.floor((time - origin) / length) * length
  const cuts = anchor === undefined ? (changes.get(zone) ?? []) : []
  const starts = [full, full + length, ...cuts.filter((change) => shiftAt(zone, change) % length !== 0)]
  return {
    start: Math.max(...starts.filter((start) => start <= time)),
    end: Math.min(...starts.filter((start) => start > time)),
  }
}

function shiftAt(zone: string, change: number): number {
  return offsetAt(zone, change) - offsetAt(zone, change - 1)
}

/** The latest start until then, and the earliest after it. */
function periodOf(calendar: Calendar, time: number): Period {
  const { zone, period, every, anchor } = calendar
  if (period === 'hour' || period === 'minute') return shortPeriodOf(calendar, time)
  const local = localAt(zone, time)
  // 1970 began on a Thursday.
  const ofAll = period === 'week' ? Date.UTC(1970, 0, 5) : FROM_MS
  const first = anchor === undefined ? ofAll : localAt(zone, anchor)
  const passed = Math.round((local - first) / (DAYS[period] * every * DAY_MS))
  const starts = [-2, -1, 0, 1, 2].map((n) => timeOf(zone, later(first, period, (passed + n) * every)))
  return {
    start: Math.max(...starts.filter((start) => start <= time)),
    end: Math.min(...starts.filter((start) => start > time)),
  }
}

/** Each time from which on a zone's offset is another. */
function changesOf(zone: string): number[] {
  const changes: number[] = []
  const stepMs = 9 * DAY_MS
  let offset = offsetAt(zone, FROM_MS)
  for (let from = FROM_MS; from < TO_MS; from += stepMs) {
    const next = offsetAt(zone, from + stepMs)
    if (next === offset) continue
    let [before, after] = [from, from + stepMs]
    while (after - before > 1000) {
      const middle = Math.floor((before + after) / 2000) * 1000
      if (offsetAt(zone, middle) === offset) before = middle
      else after = middle
    }
    changes.push(after)
    offset = next
  }
  return changes
}

const changes = new Map<string, number[]>(zones.map((zone) => [zone, changesOf(zone)]))

const anyTime = fc.integer({ min: FROM_MS, max: TO_MS })
const anyTimeOfDay = fc.oneof(
  fc.constantFrom(0, 1, 30 * MINUTE_MS, 90 * MINUTE_MS, 150 * MINUTE_MS, DAY_MS - 1),
  fc.integer({ min: 0, max: DAY_MS - 1 }),
)

/** Around the moment at which clocks are changed, often what they skip or repeat. */
function timeOfChange(zone: string): fc.Arbitrary<number> {
  const of = changes.get(zone) ?? []
  if (of.length === 0) return anyTime
  const beside = fc.oneof(
    fc.constantFrom(0, -1, 1, -MINUTE_MS, MINUTE_MS),
    fc.integer({ min: -100, max: 100 }).map((minutes) => minutes * MINUTE_MS),
    fc.integer({ min: -2 * DAY_MS, max: 2 * DAY_MS }),
  )
  return fc.tuple(fc.constantFrom(...of), beside).map(([change, ms]) => change + ms)
}

/** As local times: any, ends of months, 29 February, and whole periods away from what clocks skip or repeat. */
function anchorIn(zone: string, period: CalendarPeriod): fc.Arbitrary<number> {
  const year = fc.integer({ min: 1971, max: 2098 })
  const lastOfMonth = fc
    .tuple(year, fc.integer({ min: 1, max: 12 }), anyTimeOfDay)
    .map(([y, month, ms]) => Date.UTC(y, month, 0) + ms)
  const leapDay = fc
    .tuple(fc.integer({ min: 1972 / 4, max: 2096 / 4 }), anyTimeOfDay)
    .map(([y, ms]) => Date.UTC(4 * y, 1, 29) + ms)
  const toChange = fc
    .tuple(timeOfChange(zone), fc.constantFrom('before', 'after'), fc.integer({ min: -30, max: 30 }))
    .map(([time, side, n]) => {
      const offset = offsetAt(zone, time + (side === 'before' ? -2 : 2) * DAY_MS)
      return later(time + offset, period === 'hour' || period === 'minute' ? 'day' : period, n)
    })
    .filter((local) => local > FROM_MS && local < TO_MS)
  return fc.oneof(
    anyTime,
    timeOfChange(zone),
    fc.oneof(lastOfMonth, leapDay, toChange).map((local) => timeOf(zone, local)),
  )
}

/** A calendar, and a time: any, while clocks are changed, or where periods meet. */
function situation(anchored: boolean): fc.Arbitrary<{ calendar: Calendar; time: number }> {
  const kind = fc.record({
    zone: fc.constantFrom(...zones),
    period: fc.constantFrom('minute', 'hour', 'day', 'week', 'month', 'year'),
    every: fc.oneof(fc.constant(1), fc.constantFrom(2, 3, 5, 6, 12)),
  })
  return kind.chain(({ zone, period, every }) => {
    const anchor = anchored ? anchorIn(zone, period) : fc.constant(undefined)
    const calendar = anchor.map((time) => ({ zone, period, every, anchor: time }))
    const time = fc.oneof(anyTime, timeOfChange(zone), timeOfChange(zone))
    const beside = fc.option(fc.constantFrom(-1, 0, 1, -HOUR_MS, HOUR_MS), { nil: undefined })
    return fc.tuple(calendar, time, beside).map(([calendar, time, ms]) => ({
      calendar,
      time: ms === undefined ? time : periodOf(calendar, time).end + ms,
    }))
  })
}

function periodsIn({ zone, period, every, anchor }: Calendar): PeriodAt {
  return periodsOf(period, {
    timeZone: zone,
    every,
    ...(anchor === undefined ? {} : { anchor: new Date(anchor) }),
  }).periodAt
}

describe.each([
  { name: "the calendar's own", anchored: false },
  { name: 'those from an anchor', anchored: true },
])('the periods, $name', ({ anchored }) => {
  test('are those of an independent calendar, without gaps', () => {
    fc.assert(
      fc.property(situation(anchored), ({ calendar, time }) => {
        const periodAt = periodsIn(calendar)
        const found = periodAt(time)
        const { start, end } = found
        expect(written(found)).toEqual(written(periodOf(calendar, time)))
        expect(start <= time && time < end).toBe(true)
        // The last one is remembered, so each of these is worked out again.
        const next = periodAt(end)
        expect(next.start).toBe(end)
        expect(periodAt(end - 1)).toEqual(found)
        expect(periodAt(start - 1).end).toBe(start)
        expect(periodAt(start)).toEqual(found)
      }),
      // A third of these, because this is run with PGlite.
      runs(1500),
    )
  })
})

test('the compared calendars contain the hard cases', () => {
  const shifts = (zone: string) =>
    (changes.get(zone) ?? []).map((time) => (offsetAt(zone, time) - offsetAt(zone, time - 1)) / HOUR_MS)
  expect(shifts('UTC')).toEqual([])
  expect(shifts('Europe/Berlin').length).toBeGreaterThan(200)
  expect(shifts('Australia/Lord_Howe')).toEqual(expect.arrayContaining([0.5, -0.5]))
  expect(shifts('Asia/Kathmandu')).toEqual([0.25])
  expect(shifts('Pacific/Apia')).toContain(24)
  expect(shifts('Africa/Monrovia')).toEqual([44.5 / 60])
})

/** What it is, and below it the period, its zone and anchor, and the starts that follow each other. */
const WRITTEN = `
monthly from the 31st, never drifting, through summer time
  month Europe/Berlin from 2026-01-31T10:15+01:00: 2025-11-30T10:15+01:00 2025-12-31T10:15+01:00
    2026-01-31T10:15+01:00 2026-02-28T10:15+01:00 2026-03-31T10:15+02:00 2026-04-30T10:15+02:00
    2026-05-31T10:15+02:00
the same in a leap year
  month Europe/Berlin from 2026-01-31T10:15+01:00: 2028-01-31T10:15+01:00 2028-02-29T10:15+01:00
    2028-03-31T10:15+02:00
yearly from 29 February
  year UTC from 2024-02-29T12:00Z: 2023-02-28T12:00Z 2024-02-29T12:00Z 2025-02-28T12:00Z 2026-02-28T12:00Z
    2027-02-28T12:00Z
yearly from 29 February, four years on and where a century has none
  year UTC from 2096-02-29T12:00Z: 2096-02-29T12:00Z 2097-02-28T12:00Z 2098-02-28T12:00Z 2099-02-28T12:00Z
    2100-02-28T12:00Z
months in UTC
  month UTC: 2023-12-01T00:00Z 2024-01-01T00:00Z 2024-02-01T00:00Z 2024-03-01T00:00Z
New Year in Auckland, in summer
  year Pacific/Auckland: 2025-01-01T00:00+13:00 2026-01-01T00:00+13:00 2027-01-01T00:00+13:00
weeks begin on Monday, a short one too
  week Europe/Berlin: 2026-03-16T00:00+01:00 2026-03-23T00:00+01:00 2026-03-30T00:00+02:00
    2026-04-06T00:00+02:00
weeks from a Saturday
  week America/New_York from 2026-01-31T18:00-05:00: 2026-02-28T18:00-05:00 2026-03-07T18:00-05:00
    2026-03-14T18:00-04:00
a time that does not exist moves forward, on that day only
  day Europe/Berlin from 2026-01-31T02:30+01:00: 2026-03-28T02:30+01:00 2026-03-29T03:30+02:00
    2026-03-30T02:30+02:00
so does half an hour that does not exist
  day Australia/Lord_Howe from 2026-09-01T02:15+10:30: 2026-10-03T02:15+10:30 2026-10-04T02:45+11:00
    2026-10-05T02:15+11:00
a time that exists twice is the first
  day Europe/Berlin from 2026-01-31T02:30+01:00: 2026-10-24T02:30+02:00 2026-10-25T02:30+02:00
    2026-10-26T02:30+01:00
also when the anchor was the second
  day Europe/Berlin from 2026-10-25T02:30+01:00: 2026-10-24T02:30+02:00 2026-10-25T02:30+02:00
    2026-10-26T02:30+01:00
a midnight that does not exist
  day America/Sao_Paulo: 2018-11-03T00:00-03:00 2018-11-04T01:00-02:00 2018-11-05T00:00-02:00
a New Year that begins at a quarter past
  year Asia/Kathmandu: 1985-01-01T00:00+05:30 1986-01-01T00:15+05:45 1987-01-01T00:00+05:45
a midnight that exists twice
  month America/Havana: 2026-10-01T00:00-04:00 2026-11-01T00:00-04:00 2026-12-01T00:00-05:00
a month that has begun, though a minute later it is October again
  month America/St_Johns: 2009-10-01T00:00-02:30 2009-11-01T00:00-02:30 2009-12-01T00:00-03:30
a day that was skipped is none
  day Pacific/Apia: 2011-12-28T00:00-10:00 2011-12-29T00:00-10:00 2011-12-31T00:00+14:00
    2012-01-01T00:00+14:00
what would begin on it begins a day later
  month Pacific/Apia from 2011-10-30T08:00-10:00: 2011-11-30T08:00-10:00 2011-12-31T08:00+14:00
    2012-01-30T08:00+14:00
hours that clocks skip or repeat are as long as others
  hour Europe/Berlin: 2026-03-29T01:00+01:00 2026-03-29T03:00+02:00 2026-03-29T04:00+02:00
an hour that clocks show twice is two
  hour Europe/Berlin: 2026-10-25T02:00+02:00 2026-10-25T02:00+01:00 2026-10-25T03:00+01:00
full hours at a quarter past
  hour Asia/Kathmandu: 2026-01-01T00:15Z 2026-01-01T01:15Z 2026-01-01T02:15Z
half an hour where half an hour is repeated
  hour Australia/Lord_Howe: 2026-04-05T01:00+11:00 2026-04-05T01:30+10:30 2026-04-05T02:00+10:30
    2026-04-05T03:00+10:30
half an hour where half an hour is skipped
  hour Australia/Lord_Howe: 2026-10-04T01:00+10:30 2026-10-04T02:30+11:00 2026-10-04T03:00+11:00
    2026-10-04T04:00+11:00
hours from an anchor, whatever clocks show
  hour Australia/Lord_Howe from 2026-04-05T00:10+11:00: 2026-04-05T01:10+11:00 2026-04-05T01:40+10:30
    2026-04-05T02:40+10:30
minutes from an anchor
  minute UTC from 2026-01-01T00:00:20.500Z: 2025-12-31T23:59:20.500Z 2026-01-01T00:00:20.500Z
    2026-01-01T00:01:20.500Z
a minute after another while clocks are changed
  minute Europe/Berlin: 2026-10-25T02:59+02:00 2026-10-25T02:00+01:00 2026-10-25T02:01+01:00
quarters
  3 month America/New_York: 2025-10-01T00:00-04:00 2026-01-01T00:00-05:00 2026-04-01T00:00-04:00
    2026-07-01T00:00-04:00
quarters from 30 November, which February does not have
  3 month UTC from 2025-11-30T08:00Z: 2025-08-30T08:00Z 2025-11-30T08:00Z 2026-02-28T08:00Z 2026-05-30T08:00Z
half years
  6 month UTC: 2026-01-01T00:00Z 2026-07-01T00:00Z 2027-01-01T00:00Z
fortnights from a payday, through summer time
  2 week Europe/Berlin from 2026-03-06T00:00+01:00: 2026-03-06T00:00+01:00 2026-03-20T00:00+01:00
    2026-04-03T00:00+02:00
terms of four years from 29 February
  4 year UTC from 2024-02-29T00:00Z: 2020-02-29T00:00Z 2024-02-29T00:00Z 2028-02-29T00:00Z
a quarter of a day ends where clocks change by an hour
  6 hour Europe/Berlin: 2026-03-28T18:00+01:00 2026-03-29T00:00+01:00 2026-03-29T03:00+02:00
    2026-03-29T06:00+02:00
`

const PERIODS: readonly CalendarPeriod[] = ['minute', 'hour', 'day', 'week', 'month', 'year']

const byHand = WRITTEN.trim()
  .split(/\n(?! )/)
  .map((entry) => {
    const [name = '', ...lines] = entry.split('\n')
    const line = lines.join('').trim().replaceAll(/ +/g, ' ')
    const [, every = '1', length, zone = '', anchor, starts = ''] =
      /^(?:(\d+) )?(\w+) (\S+?)(?: from (\S+))?: (.+)$/.exec(line) ?? []
    const period = PERIODS.find((each) => each === length)
    if (!period) throw new Error(`${name} cannot be read.`)
    return { name, period, zone, anchor, every: Number(every), starts: starts.split(' ').map(Date.parse) }
  })

test.each(byHand)('written out by hand: $name', ({ period, zone, anchor, every, starts }) => {
  const calendar = { zone, period, every, anchor: anchor === undefined ? undefined : Date.parse(anchor) }
  expect(starts.length).toBeGreaterThan(2)
  for (const [place, end] of starts.slice(1).entries()) {
    const start = starts[place] ?? Number.NaN
    for (const time of [start, Math.floor((start + end) / 2), end - 1]) {
      expect(written(periodsIn(calendar)(time))).toEqual(written({ start, end }))
      expect(written(periodOf(calendar, time))).toEqual(written({ start, end }))
    }
  }
})

test('a period is not worked out again after the ones next to it', () => {
  const { periodAt } = periodsOf('month', {})
  const now = periodAt(Date.UTC(2026, 4, 15))
  periodAt(now.end)
  periodAt(now.start - 1)
  expect(periodAt(now.start)).toBe(now)
})

/** So that a difference can be read. */
function written({ start, end }: Period): { start: string; end: string } {
  return { start: new Date(start).toISOString(), end: new Date(end).toISOString() }
}
