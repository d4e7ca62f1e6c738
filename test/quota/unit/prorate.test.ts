import fc from 'fast-check'
import { DateTime } from 'luxon'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { prorate } from '../../../src/quota/index.ts'
import { runs } from '../../support/runs.ts'

const [small, large] = [calendarWindow(1000, 'month'), calendarWindow(4000, 'month')]
/** Equal, but for the function that each limiter has of its own. */
const same = (limiter: Limiter) => ({ ...limiter, withTokens: expect.any(Function) })
const refusal = expect.objectContaining({ code: 'INVALID_OPTION' })

test('each plan has its part of the period', () => {
  const prorated = prorate(small, large, new Date('2026-04-11T00:00:00Z'))
  expect(prorated).toEqual({
    limiter: same(calendarWindow(3000, 'month')),
    start: Date.UTC(2026, 3, 1),
    end: Date.UTC(2026, 4, 1),
    share: 2 / 3,
  })
  expect(prorate(large, small, new Date('2026-04-11T00:00:00Z')).limiter).toMatchObject({ limit: 2000 })
})

test('a change at the start is the new plan, and one at the last millisecond hardly differs from the old', () => {
  expect(prorate(small, large, new Date('2026-04-01T00:00:00Z'))).toMatchObject({ share: 1 })
  expect(prorate(small, large, new Date('2026-04-01T00:00:00Z')).limiter.limit).toBe(4000)
  const last = prorate(small, large, new Date('2026-04-30T23:59:59.999Z'))
  // Rounded up.
  expect(last.limiter.limit).toBe(1001)
  expect(last.share).toBeGreaterThan(0)
})

test('periods are those of the plans: zones, anchors, clock changes', () => {
  const options = { timeZone: 'Europe/Berlin', anchor: new Date('2026-01-31T09:15:00Z') }
  const [from, to] = [0, 30].map((tokens) => calendarWindow(tokens, 'month', options)) as [Limiter, Limiter]
  const { start, end, limiter } = prorate(from, to, new Date('2026-03-15T12:00:00Z'))
  const zone = { zone: 'Europe/Berlin' }
  expect(start).toBe(DateTime.fromISO('2026-02-28T10:15', zone).toMillis())
  expect(end).toBe(DateTime.fromISO('2026-03-31T10:15', zone).toMillis())
  expect(limiter).toEqual(same(calendarWindow(limiter.limit, 'month', options)))
})

test('a quarter is prorated as one period, and is not alike a month', () => {
  const of = (tokens: number) => calendarWindow(tokens, 'month', { every: 3 })
  const { limiter, start, end } = prorate(of(900), of(1800), new Date('2026-01-31T00:00:00Z'))
  expect([start, end]).toEqual([Date.UTC(2026, 0), Date.UTC(2026, 3)])
  expect(limiter).toEqual(same(of(1500)))
  expect(() => prorate(of(900), large, new Date('2026-01-31T00:00:00Z'))).toThrow(refusal)
})

test('what is carried over is at most the tokens of the period', () => {
  const of = (tokens: number, max: number) => calendarWindow(tokens, 'month', { rollover: { max } })
  const { limiter } = prorate(of(100, 100), of(1000, 500), new Date('2026-04-29T00:00:00Z'))
  expect(limiter).toEqual(same(of(160, 160)))
  expect(prorate(of(1, 1), calendarWindow(0, 'month'), new Date('2026-04-29T00:00:00Z')).limiter.limit).toBe(
    1,
  )
})

test('it is between the plans, and one plan stays as it is, whatever their size', () => {
  const tokens = fc.oneof(fc.nat(1000), fc.maxSafeNat())
  const time = fc.date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true })
  const period = fc.constantFrom('minute', 'hour', 'day', 'week', 'month', 'year')
  const property = fc.property(tokens, tokens, period, time, (one, other, unit, at) => {
    const [from, to] = [calendarWindow(one, unit), calendarWindow(other, unit)]
    expect(prorate(from, from, at).limiter.limit).toBe(one)
    const { limiter, start, end, share } = prorate(from, to, at)
    expect(limiter.limit).toBeGreaterThanOrEqual(Math.min(one, other))
    expect(limiter.limit).toBeLessThanOrEqual(Math.max(one, other))
    expect(at.getTime()).toBeGreaterThanOrEqual(start)
    expect(at.getTime()).toBeLessThan(end)
    const about = one + (other - one) * share
    expect(Math.abs(limiter.limit - about)).toBeLessThanOrEqual(1 + Math.max(one, other) * 1e-12)
  })
  fc.assert(property, runs(300))
})

describe('is refused', () => {
  const at = new Date('2026-04-11T00:00:00Z')

  test.each<[string, Limiter]>([
    ['another period', calendarWindow(1000, 'week')],
    ['another time zone', calendarWindow(1000, 'month', { timeZone: 'Asia/Tokyo' })],
    ['another anchor', calendarWindow(1000, 'month', { anchor: at })],
    ['another algorithm', Ratelimit.fixedWindow(1000, '30d')],
    ['no limit', Ratelimit.unlimited()],
    ['a window without a limit', calendarWindow(Number.POSITIVE_INFINITY, 'month')],
    ['what is no limiter', {} as Limiter],
    ['nothing', undefined as unknown as Limiter],
  ])('%s', (_, other) => {
    expect(() => prorate(small, other, at)).toThrow(refusal)
    expect(() => prorate(other, small, at)).toThrow(refusal)
  })

  test.each([new Date(Number.NaN), new Date(8.64e15), '2026-04-11', undefined] as Date[])(
    'a time such as %s',
    (time) => {
      expect(() => prorate(small, large, time)).toThrow(refusal)
    },
  )
})
