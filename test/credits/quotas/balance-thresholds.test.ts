import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { LimitResult, Reservation } from '../../../src/index.ts'
import { spend, type Threshold } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { undone } from '../../support/undone.ts'

// What a balance reports of its thresholds, against a model that knows each reservation.

const database = useDatabase()
const LOW: Threshold = { left: 100 }

function crossedBy(answer: LimitResult): readonly Threshold[] {
  return (answer.success && answer.crossed) || []
}

async function creditsOf(amount: number, thresholds: readonly Threshold[] = [LOW]) {
  const made = creditsOn(database, { thresholds })
  await made.credits.grant('key', amount)
  const spendFor = async (rate: number) => crossedBy(await made.credits.limit('key', { rate, force: true }))
  return { ...made, spendFor }
}

test('the call that leaves few credits says so, and a grant arms the threshold again', async () => {
  const { credits, spendFor } = await creditsOf(300)
  expect([await spendFor(199), await spendFor(1), await spendFor(50)]).toEqual([[], [LOW], []])
  await credits.grant('key', 49)
  // There are still fewer than it takes.
  expect(await spendFor(1)).toEqual([])
  await credits.grant('key', 100)
  expect([await spendFor(97), await spendFor(1), await spendFor(500)]).toEqual([[], [LOW], []])
})

test('a first grant crosses nothing, and neither does a first call with few credits', async () => {
  const { spendFor } = await creditsOf(50)
  expect(await spendFor(1)).toEqual([])
})

test('a share is one of all grants', async () => {
  const { credits, spendFor } = await creditsOf(100, [0.5])
  expect([await spendFor(49), await spendFor(1)]).toEqual([[], [0.5]])
  await credits.grant('key', 100)
  expect([await spendFor(49), await spendFor(1)]).toEqual([[], [0.5]])
})

test('an open estimate crosses nothing, and does not count as used', async () => {
  const { credits, spendFor } = await creditsOf(300)
  const reserved = allowed(await credits.reserve('key', { rate: 250 }))
  expect(crossedBy(reserved)).toEqual([])
  expect(await spendFor(10)).toEqual([])
  expect(crossedBy(await reserved.commit(180))).toEqual([])
  expect(await spendFor(10)).toEqual([LOW])
})

test('a rollback crosses nothing, and the next call crosses', async () => {
  const { credits, spendFor } = await creditsOf(300)
  await undone(database.db, async (tx) => {
    expect(crossedBy(await credits.limit('key', { rate: 250, tx }))).toEqual([LOW])
  })
  expect(await spendFor(200)).toEqual([LOW])
})

test('one of equal calls at once crosses it, and spend says it for its part', async () => {
  const { credits } = await creditsOf(105)
  const answers = await Promise.all(Array.from({ length: 9 }, () => credits.limit('key')))
  expect(answers.map(crossedBy)).toEqual([...Array(4).fill([]), [LOW], ...Array(4).fill([])])
  await credits.grant('key', 5)
  const { results } = await spend([{ ratelimit: credits, key: 'key' }], { rate: 3 })
  expect(results.map(crossedBy)).toEqual([[LOW]])
})

const THRESHOLDS: readonly Threshold[] = [
  ...[20, 100, 150, 0].map((left) => ({ left })),
  ...[30, 200].map((used) => ({ used })),
  ...[0.5, 0.8, 1, 1.2],
]

/** Whether the threshold is reached with so many settled credits of so many granted ones. */
function isReached(threshold: Threshold, used: number, granted: number): boolean {
  if (typeof threshold === 'number') return granted > 0 && used / granted >= threshold
  return threshold.left === undefined ? used >= threshold.used : granted - used <= threshold.left
}

test('an answer reports each threshold when the settled credits cross it, whatever else is reserved', async () => {
  const amount = fc.integer({ min: 0, max: 90 })
  const anyStep = fc.record({
    op: fc.constantFrom('grant', 'limit', 'force', 'refund', 'reserve', 'reserve', 'settle', 'settle'),
    amount,
    which: fc.nat(),
    undo: fc.constantFrom(false, false, false, true),
  })
  let crossings = 0
  const property = fc.asyncProperty(fc.array(anyStep, { maxLength: 30, size: 'max' }), async (steps) => {
    const { credits } = await creditsOf(200, THRESHOLDS)
    let [granted, used, reserved] = [200, 0, 0]
    const open: { readonly reservation: Reservation; readonly rate: number }[] = []

    async function run(step: (typeof steps)[number], tx = database.db): Promise<void> {
      const options = tx === database.db ? {} : { tx }
      const before = used - reserved
      let crossed: readonly Threshold[] = []
      if (step.op === 'grant') {
        granted += step.amount + 1
        await credits.grant('key', step.amount + 1, options)
      } else if (step.op === 'reserve') {
        const made = await credits.reserve('key', { rate: step.amount, ...options })
        expect(made.success).toBe(step.amount === 0 || used + step.amount <= granted)
        expect(crossedBy(made)).toEqual([])
        if (!made.success) return
        used += step.amount
        reserved += step.amount
        open.push({ reservation: made, rate: step.amount })
      } else if (step.op === 'settle') {
        const [one] = open.splice(step.which % Math.max(open.length, 1), 1)
        if (!one) return
        crossed = crossedBy(await one.reservation.commit(step.amount, options))
        const more = step.amount - one.rate
        if (more > 0 || used > 0) {
          used = Math.max(used + more, 0)
          reserved = Math.min(Math.max(reserved - one.rate, 0), used)
        }
      } else {
        const [force, rate] = [step.op === 'force', step.op === 'refund' ? -step.amount : step.amount]
        const answer = await credits.limit('key', { rate, force, ...options })
        crossed = crossedBy(answer)
        if (answer.success) used = Math.max(used + rate, 0)
        reserved = Math.min(reserved, used)
      }
      const after = used - reserved
      const expected = THRESHOLDS.filter(
        (each) => !isReached(each, before, granted) && isReached(each, after, granted),
      )
      expect({ step, crossed }).toEqual({ step, crossed: expected })
      crossings += expected.length
    }

    for (const step of steps) {
      if (step.undo && step.op !== 'settle') {
        const before = [granted, used, reserved, open.length] as const
        await undone(database.db, async (tx) => {
          await run(step, tx)
        })
        ;[granted, used, reserved, open.length] = before
      } else await run(step)
      expect(await credits.getRemaining('key')).toMatchObject({ used, limit: granted })
    }
  })
  await fc.assert(property, runs(60))
  expect(crossings).toBeGreaterThan(runs(60).numRuns)
})
