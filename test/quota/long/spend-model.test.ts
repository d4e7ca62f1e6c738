import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Spent, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { examples } from '../../support/limits.ts'
import { runs } from '../../support/runs.ts'
import { BalanceModel, LimitModel, type PaidCost, SpendModel } from '../../support/spend-model.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'

// Estimates over several limits, settled in any order and at any time, compared with a model.

const database = useDatabase()

/** A limit of the kind, or a balance. */
type Kind = (typeof examples)[number] | 'balance'

const paying: Kind[] = ['balance', ...examples.filter(({ algorithm }) => algorithm !== 'lockout')]

const anySource = fc.record({ kind: fc.constantFrom(...paying), tokens: fc.integer({ min: 1, max: 30 }) })

const anyStep = fc.oneof(
  fc.record({
    op: fc.constant('spend' as const),
    rate: fc.integer({ min: 1, max: 40 }),
    least: fc.option(fc.integer({ min: 1, max: 40 })),
  }),
  fc.record({
    op: fc.constant('settle' as const),
    which: fc.nat(),
    actual: fc.integer({ min: 0, max: 60 }),
    debt: fc.constantFrom('first' as const, 'last' as const),
  }),
  fc.record({
    op: fc.constant('wait' as const),
    ms: fc.constantFrom(1, HOUR_MS - 1, HOUR_MS, 10 * HOUR_MS, 700 * HOUR_MS),
  }),
)

/** Amounts are halves if no limit counts whole units. */
const closeTo = (amounts: readonly number[]) => amounts.map((each) => expect.closeTo(each, 6))

test('estimates over windows, buckets and balances are as the model has them, whenever they are settled', async () => {
  const sources = fc.array(anySource, { minLength: 1, maxLength: 4 })
  const steps = fc.array(anyStep, { maxLength: 25, size: 'max' })
  const property = fc.asyncProperty(sources, steps, async (limits, calls) => {
    const clock = new TestClock()
    const made = await Promise.all(limits.map((each) => sourceOf(each, clock)))
    const takesFractions = made.every((each) => each.takesFractions)
    const model = new SpendModel(
      made.map((each) => each.model),
      !takesFractions,
    )
    const requests = made.map(({ quota }) => ({ ratelimit: quota, key: 'key' }))
    const scale = takesFractions ? 0.5 : 1
    const open: { readonly spent: Spent & { readonly success: true }; readonly paid: PaidCost }[] = []
    for (const step of calls) {
      if (step.op === 'wait') clock.advance(step.ms)
      if (step.op === 'spend') {
        const rate = step.rate * scale
        const atLeast = Math.min((step.least ?? step.rate) * scale, rate)
        const spent = await spend(requests, { rate, atLeast })
        const paid = model.spend(clock.ms, rate, atLeast)
        expect(spent.granted).toEqual(closeTo(made.map((_, place) => paid?.[place]?.units ?? 0)))
        expect(spent.success).toBe(paid !== undefined)
        if (!spent.success) expect(spent.retryAfter).toBe(model.retryAfter(clock.ms, atLeast))
        else if (paid) open.push({ spent, paid })
      }
      if (step.op === 'settle') {
        const [one] = open.splice(step.which % Math.max(open.length, 1), 1)
        if (!one) continue
        const actual = step.actual * scale
        const { granted } = await one.spent.commit(actual, { debt: step.debt })
        expect(granted).toEqual(closeTo(model.commit(clock.ms, one.paid, actual, step.debt)))
      }
      const used = await Promise.all(made.map(async ({ quota }) => (await quota.getRemaining('key')).used))
      expect(used).toEqual(closeTo(made.map((each) => each.model.used(clock.ms))))
    }
  })
  await fc.assert(property, runs(60))
})

async function sourceOf(
  { kind, tokens }: { readonly kind: Kind; readonly tokens: number },
  clock: TestClock,
) {
  if (kind !== 'balance') {
    const plan = kind.of(tokens, '1h')
    const { quota } = quotaOn(database, plan.limiter, { clock: clock.now })
    return { quota, model: new LimitModel(plan), takesFractions: kind.takesFractions }
  }
  const { credits } = creditsOn(database, { clock: clock.now })
  await credits.grant('key', tokens)
  const model = new BalanceModel()
  model.granted = tokens
  return { quota: credits, model, takesFractions: false }
}
