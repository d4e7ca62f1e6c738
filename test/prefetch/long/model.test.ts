import { prefetch } from 'drizzle-ratelimit/prefetch'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type LimitResult, Ratelimit } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { examples, type Plan } from '../../support/limits.ts'
import { Model } from '../../support/model.ts'
import { runs } from '../../support/runs.ts'

// Random calls with prefetch, compared with the model, and added up against the bounds.

const database = useDatabase()
let prefixes = 0

const TOKENS = 100
const UNIT_MS = 1_000
const FOR_MS = 2_000
/** In the calendar everything comes back with the month, far from the clock of the test. */
const MOST_MS = 12 * UNIT_MS

interface Step {
  readonly process: number
  readonly passedMs: number
  readonly op: 'limit' | 'part' | 'force' | 'refund' | 'reset' | 'plan'
  readonly rate: number
  readonly times: number
}

function anySteps(processes: number, ops: readonly Step['op'][]): fc.Arbitrary<Step[]> {
  const step = fc.record({
    process: fc.nat(processes - 1),
    passedMs: fc.oneof(
      { weight: 6, arbitrary: fc.constant(0) },
      { weight: 3, arbitrary: fc.integer({ min: 1, max: FOR_MS }) },
      fc.integer({ min: 0, max: MOST_MS }),
    ),
    op: fc.oneof({ weight: 8, arbitrary: fc.constant('limit' as const) }, fc.constantFrom(...ops)),
    rate: fc.integer({ min: 1, max: 4 }),
    times: fc.integer({ min: 1, max: 12 }),
  })
  return fc.array(step, { minLength: 5, maxLength: 40, size: 'max' })
}

/** Several limiters as in several processes, with one clock. */
function processesOf({ limiter }: Plan, count: number) {
  const clock = new TestClock()
  const common = { db: database.db, limiter, prefix: `prefetch ${prefixes++}`, cleanupProbability: 0 }
  const use = [prefetch({ tokens: 50, for: FOR_MS })]
  const prefetching = () => new Ratelimit({ ...common, clock: clock.now, use })
  return { clock, prefix: common.prefix, prefetching: Array.from({ length: count }, prefetching) }
}

const windows = examples.filter(({ of }) => of(TOKENS, UNIT_MS).limiter.algorithm.hasPeriods)

test.each(windows)('a sole process gets with prefetch what the model gives: $name', async ({ of }) => {
  const [plan, smaller] = [of(TOKENS, UNIT_MS), of(TOKENS / 2, UNIT_MS)]
  let fromMemory = 0
  const steps = anySteps(1, ['limit', 'part', 'force', 'refund', 'reset', 'plan'])
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const { clock, prefetching, prefix } = processesOf(plan, 1)
      const [ratelimit] = prefetching as [Ratelimit]
      const model = new Model()
      for (const { passedMs, op, rate, times } of all) {
        clock.advance(passedMs)
        if (op === 'reset') {
          await ratelimit.resetUsedTokens('key')
          model.resetUsedTokens(plan, clock.ms)
          continue
        }
        const used = op === 'plan' ? smaller : plan
        const how = { ...(op === 'force' && { force: true }), ...(op === 'part' && { atLeast: rate }) }
        const amount = op === 'refund' ? -rate : op === 'part' ? 5 * rate : rate
        for (let i = 0; i < times; i++) {
          const { limiter } = used
          const answer = await ratelimit.limit('key', { rate: amount, limiter, ...how })
          const expected: { ended?: unknown; success?: boolean } = {
            ...model.limit(used, clock.ms, amount, how),
          }
          // At a period's end, what was prefetched and not used counts as used.
          const given: { ended?: unknown; success?: boolean } = { ...answer }
          for (const each of [expected, given]) delete each.ended
          if (answer.success && answer.prefetched) fromMemory++
          expect(given).toEqual(answer.success && answer.prefetched ? certainly(expected, answer) : expected)
        }
      }
      await ratelimit.close()
      const asking = new Ratelimit({ db: database.db, limiter: plan.limiter, prefix, clock: clock.now })
      // Nothing that was not used stays charged.
      expect((await asking.getRemaining('key')).used).toBe(model.getRemaining(plan, clock.ms).used)
    }),
    runs(30),
  )
  expect(fromMemory).toBeGreaterThan(runs(30).numRuns)
})

/** What an answer from memory has to say: at least so much is left, and it is full again at the latest then. */
function certainly(expected: object, { remaining, reset }: LimitResult): object {
  const { remaining: left, reset: whole } = expected as LimitResult
  expect(remaining).toBeLessThanOrEqual(left)
  expect(reset).toBeGreaterThanOrEqual(whole)
  return { ...expected, remaining, reset, prefetched: true }
}

/** A lockout has no prefetch. */
const prefetchable = examples.filter(({ of }) => !of(TOKENS, UNIT_MS).limiter.algorithm.numbers.block)

test.each(prefetchable)('several processes never exceed the bounds: $name', async ({ of }) => {
  const plan = of(TOKENS, UNIT_MS)
  const { hasPeriods, kind } = plan.limiter.algorithm
  const perMs = kind === 'window' ? TOKENS / (10 * UNIT_MS) : 1 / UNIT_MS
  let fromMemory = 0
  await fc.assert(
    fc.asyncProperty(anySteps(3, ['part']), async (all) => {
      const { clock, prefetching } = processesOf(plan, 3)
      const grants: { readonly at: number; readonly start: number | undefined; readonly granted: number }[] =
        []
      for (const { process, passedMs, op, rate, times } of all) {
        clock.advance(passedMs)
        const ratelimit = prefetching[process] as Ratelimit
        const options = op === 'part' ? { rate: 5 * rate, atLeast: rate } : { rate }
        const answers = await Promise.all(
          Array.from({ length: times }, () => ratelimit.limit('key', options)),
        )
        for (const answer of answers) {
          if (!answer.success) continue
          if (answer.prefetched) fromMemory++
          const { start, granted = options.rate } = answer
          grants.push({ at: clock.ms, start, granted })
          // An answer never comes from a window that is over.
          if (hasPeriods && answer.prefetched) expect(clock.ms).toBeLessThan(answer.reset)
        }
      }
      if (hasPeriods) {
        for (const { start } of grants) {
          const sum = grants.reduce((total, each) => total + (each.start === start ? each.granted : 0), 0)
          expect(sum).toBeLessThanOrEqual(TOKENS)
        }
        return
      }
      for (const [first, { at: from }] of grants.entries()) {
        let sum = 0
        for (const { at, granted } of grants.slice(first)) {
          sum += granted
          expect(sum).toBeLessThanOrEqual(TOKENS + (at - from + FOR_MS) * perMs + 1)
        }
      }
    }),
    runs(60),
  )
  // A limit without a burst has nothing to prefetch.
  if (!plan.name.includes('"burst":1}')) expect(fromMemory).toBeGreaterThan(0)
})
