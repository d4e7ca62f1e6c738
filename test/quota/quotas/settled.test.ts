import fc from 'fast-check'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import type { LimitResult, Reservation } from '../../../src/index.ts'
import type { Threshold } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { quotaOn } from '../../support/ten.ts'

// The thresholds that a calendar window reports, against a model that knows each reservation.

const database = useDatabase()
const THRESHOLDS: readonly Threshold[] = [
  ...Array.from({ length: 15 }, (_, i) => (i + 1) / 10),
  ...[35, 110].map((used) => ({ used })),
  ...[0, 40].map((left) => ({ left })),
]

function isReached(threshold: Threshold, used: number, limit: number): boolean {
  if (typeof threshold === 'number') return used / limit >= threshold
  return threshold.left === undefined ? used >= threshold.used : limit - used <= threshold.left
}

const PLANS = { small: 100, large: 250 } as const
type Plan = keyof typeof PLANS

type Step =
  | { readonly op: 'limit'; readonly rate: number; readonly force: boolean; readonly plan: Plan }
  | { readonly op: 'reserve'; readonly rate: number; readonly plan: Plan }
  /** Settles one of the reservations, at what share of its estimate. */
  | { readonly op: 'settle'; readonly which: number; readonly share: number; readonly plan: Plan }
  | { readonly op: 'next period' }

const plan = fc.constantFrom<Plan>('small', 'small', 'small', 'large')
const anyStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('limit' as const),
      rate: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: -30, max: -1 }), fc.constant(-1000)),
      force: fc.boolean(),
      plan,
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('reserve' as const),
      rate: fc.integer({ min: 0, max: 60 }),
      plan,
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('settle' as const),
      which: fc.nat(),
      share: fc.constantFrom(0, 0.1, 0.5, 1, 1, 1.5, 4),
      plan,
    }),
  },
  { weight: 1, arbitrary: fc.constant({ op: 'next period' as const }) },
)

/** An estimate that was too low is settled in the next period, in which another one is open. */
const OVER_AFTER_ITS_PERIOD: Step[] = [
  { op: 'reserve', rate: 30, plan: 'small' },
  { op: 'next period' },
  { op: 'reserve', rate: 40, plan: 'small' },
  { op: 'settle', which: 0, share: 1.5, plan: 'small' },
]

/** The key's period: what is charged, which part of it is reserved, and the most that was settled. */
class Period {
  used = 0
  reserved = 0
  most = 0

  /** Charges the amount, and tells which thresholds are crossed by it. */
  change(amount: number, reserved: number, limit: number): Threshold[] {
    this.used = Math.max(this.used + amount, 0)
    this.reserved = Math.min(Math.max(this.reserved + reserved, 0), this.used)
    const settled = this.used - this.reserved
    const crossed = THRESHOLDS.filter(
      (each) => !isReached(each, this.most, limit) && isReached(each, settled, limit),
    )
    this.most = Math.max(this.most, settled)
    return crossed
  }
}

interface Open {
  readonly reservation: Reservation
  readonly rate: number
  readonly period: Period
}

test('an answer reports each settled unit once, whatever else is reserved', async () => {
  let crossings = 0
  const sequences = fc.array(anyStep, { minLength: 1, maxLength: 40, size: 'max' })
  await fc.assert(
    fc.asyncProperty(sequences, async (steps) => {
      const limiters = {
        small: calendarWindow(PLANS.small, 'month'),
        large: calendarWindow(PLANS.large, 'month'),
      }
      const { clock, quota } = quotaOn(database, limiters.small, { thresholds: THRESHOLDS })
      let period = new Period()
      let month = 0
      const open: Open[] = []
      for (const [place, step] of steps.entries()) {
        if (step.op === 'next period') {
          clock.ms = Date.UTC(2026, ++month, 1)
          period = new Period()
          continue
        }
        const [limit, limiter] = [PLANS[step.plan], limiters[step.plan]]
        let answer: LimitResult
        let expected: Threshold[] = []
        if (step.op === 'limit') {
          const { rate, force } = step
          answer = await quota.limit('key', { rate, force, limiter })
          expect(answer.success).toBe(rate <= 0 || force || period.used + rate <= limit)
          if (answer.success) expected = period.change(rate, 0, limit)
          if (rate < 0) expect(expected).toEqual([])
        } else if (step.op === 'reserve') {
          const { rate } = step
          const reserved = await quota.reserve('key', { rate, limiter })
          answer = reserved
          expect(reserved.success).toBe(rate === 0 || period.used + rate <= limit)
          if (reserved.success) {
            expect(period.change(rate, rate, limit)).toEqual([])
            open.push({ reservation: reserved, rate, period })
          }
        } else {
          const [settled] = open.splice(step.which % Math.max(open.length, 1), 1)
          if (!settled) continue
          const actual = Math.round(settled.rate * step.share)
          answer = await settled.reservation.commit(actual, { limiter })
          const more = actual - settled.rate
          if (settled.period !== period) expected = more > 0 ? period.change(more, 0, limit) : []
          else if (more > 0 || period.used > 0) expected = period.change(more, -settled.rate, limit)
        }
        expect({ place, step, crossed: (answer.success && answer.crossed) || [] }).toEqual({
          ...{ place, step, crossed: expected },
        })
        expect(await quota.getRemaining('key')).toMatchObject({ used: period.used })
        crossings += expected.length
      }
    }),
    { ...runs(100), examples: [[OVER_AFTER_ITS_PERIOD]] },
  )
  expect(crossings).toBeGreaterThan(runs(100).numRuns)
})
