import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Ratelimit, RatelimitError } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import {
  anyPlan,
  type Plan,
  planOf,
  similarPlans,
  takesFractions,
  type VectorLimiter,
} from '../../support/limits.ts'
import { MOST, Model, type ModelAnswer, type ModelRemaining } from '../../support/model.ts'
import { runs } from '../../support/runs.ts'
import vectorsFile from '../../vectors.json' with { type: 'json' }

// Slow: thousands of calls, and each depends on those before it.

const database = useDatabase()

interface Vector {
  readonly name: string
  readonly limiter: VectorLimiter
  readonly steps: readonly {
    readonly at: number
    readonly op: string
    readonly rate?: number
    readonly times?: number
    readonly expect?: unknown
  }[]
}

const vectors: readonly Vector[] = vectorsFile.vectors

/** Plans for one key: the limiter's own, then those of single calls, mostly of the same algorithm. */
const anyPlans: fc.Arbitrary<readonly Plan[]> = fc.oneof(
  { weight: 4, arbitrary: similarPlans },
  { weight: 1, arbitrary: fc.array(anyPlan, { minLength: 2, maxLength: 4 }) },
)

function anyRate(plan: Plan): fc.Arbitrary<number> {
  const capacity = Math.min(plan.rules.capacity, MOST)
  const rates = fc.oneof(
    fc.integer({ min: 1, max: 3 }),
    fc.constantFrom(0, capacity, capacity / 2, capacity / 3, capacity / 10, capacity + 1, 0.1, 1 / 3),
    fc.integer({ min: 1, max: 1100 }).map((share) => (capacity * share) / 1000),
    fc.integer({ min: -1000, max: -1 }).map((share) => (capacity * share) / 1000),
    fc.constantFrom(-1, -2 * capacity, -1e9, MOST, -MOST),
  )
  const valid = rates.map((rate) => Math.min(Math.max(rate, -MOST), MOST))
  return takesFractions(plan) ? valid : valid.map(Math.ceil)
}

/** Of some calls the share of the rate that they take at least. */
const anyShare = fc.option(fc.constantFrom(1, 0.001, 0.5, 0.25), { nil: undefined, freq: 2 })

function leastOf(plan: Plan, rate: number, share: number | undefined): number | undefined {
  if (share === undefined || rate < 0.001) return undefined
  return takesFractions(plan) ? rate * share : Math.ceil(rate * share)
}

function anyAdvance(plan: Plan): fc.Arbitrary<number> {
  const { stepMs } = plan
  const { periodMs } = plan.rules
  return fc.oneof(
    fc.constantFrom(1, stepMs, stepMs - 1, stepMs + 1, 2 * stepMs, periodMs),
    fc.integer({ min: 0, max: stepMs }),
    fc.integer({ min: 0, max: 2 * periodMs }),
  )
}

function anyReturn({ rules: { periodMs } }: Plan): fc.Arbitrary<number> {
  return fc.oneof(
    fc.constantFrom(1, periodMs, periodMs + 1).map((ms) => -ms),
    fc.integer({ min: 0, max: 2 * periodMs }).map((ms) => -ms),
  )
}

type Step =
  | {
      readonly op: 'limit'
      readonly plan: Plan
      readonly rate: number
      readonly share: number | undefined
      readonly force: boolean
    }
  | { readonly op: 'getRemaining'; readonly plan: Plan }
  | { readonly op: 'resetUsedTokens' }
  | { readonly op: 'advance'; readonly ms: number }
  /** To the last answer's reset, or just before it. */
  | { readonly op: 'approach'; readonly ms: number }

function anyStep(plans: readonly Plan[]): fc.Arbitrary<Step> {
  const used = fc.constantFrom(...plans)
  const limit = used.chain((plan) =>
    fc.record({
      op: fc.constant('limit' as const),
      plan: fc.constant(plan),
      rate: anyRate(plan),
      ...{ share: anyShare, force: fc.nat(9).map((n) => n === 0) },
    }),
  )
  const advance = (ms: (plan: Plan) => fc.Arbitrary<number>) =>
    fc.record({ op: fc.constant('advance' as const), ms: used.chain(ms) })
  return fc.oneof(
    { weight: 12, arbitrary: limit },
    { weight: 3, arbitrary: fc.record({ op: fc.constant('getRemaining' as const), plan: used }) },
    { weight: 1, arbitrary: fc.constant({ op: 'resetUsedTokens' as const }) },
    { weight: 5, arbitrary: advance(anyAdvance) },
    { weight: 1, arbitrary: advance(anyReturn) },
    { weight: 3, arbitrary: fc.record({ op: fc.constant('approach' as const), ms: fc.constantFrom(0, -1) }) },
  )
}

const anySequence = anyPlans.chain((plans) =>
  fc.record({
    plans: fc.constant(plans),
    steps: fc.array(anyStep(plans), { minLength: 1, maxLength: 30, size: 'max' }),
  }),
)

describe('against the model', () => {
  test('the model itself gives the shared vectors', () => {
    for (const { name, limiter, steps } of vectors) {
      const plan = planOf(limiter)
      const model = new Model()
      for (const { at, op, rate = 1, times = 1, expect: expected } of steps) {
        let answer: unknown
        if (op === 'reset') model.resetUsedTokens(plan, at)
        else if (op === 'remaining') answer = left(model.getRemaining(plan, at))
        else for (let i = 0; i < times; i++) answer = ofVectors(model.limit(plan, at, rate))
        expect({ name, at, answer: writeNever(answer) }).toEqual({ name, at, answer: expected })
      }
    }
  })

  test('every answer of any sequence of calls is the model’s', async () => {
    await holds(
      fc.asyncProperty(anySequence, async ({ plans, steps }) => {
        const own = plans[0] as Plan
        const { clock, key, ratelimit } = newKey(own)
        const model = new Model()
        let reset = clock.ms
        let hadMuch = false
        for (const [place, step] of steps.entries()) {
          hadMuch ||= step.op === 'limit' && Math.abs(step.rate) > MUCH
          if (step.op === 'advance') clock.advance(step.ms)
          else if (step.op === 'approach') clock.ms = Math.max(clock.ms, reset + step.ms)
          else if (step.op === 'resetUsedTokens') {
            await ratelimit.resetUsedTokens(key)
            model.resetUsedTokens(own, clock.ms)
          } else {
            const { plan } = step
            const options = plan === own ? {} : { limiter: plan.limiter }
            const atLeast = step.op === 'limit' ? leastOf(plan, step.rate, step.share) : undefined
            const how = step.op === 'limit' && step.force ? { force: true } : { atLeast }
            const [answer, expected] =
              step.op === 'limit'
                ? [
                    await orCode(() => ratelimit.limit(key, { rate: step.rate, ...how, ...options })),
                    await orCode(() => model.limit(plan, clock.ms, step.rate, how)),
                  ]
                : [left(await ratelimit.getRemaining(key, options)), left(model.getRemaining(plan, clock.ms))]
            // As text: a plan makes other plans without end, and Vitest would send them all.
            const made = fc.stringify(step)
            expect({ place, made, ...answer }).toEqual({ place, made, ...about(expected, hadMuch) })
            if ('reset' in answer && answer.reset < FAR_MS) reset = answer.reset
          }
        }
      }),
      150,
    )
  })

  test('calls made at once are answered as if made one after the other', async () => {
    const anyCalls = anyPlan.chain((plan) =>
      fc.record({
        plan: fc.constant(plan),
        rates: fc.array(
          anyRate(plan).filter((rate) => rate > 0),
          { minLength: 1, maxLength: 3 },
        ),
        runs: fc.array(fc.integer({ min: 1, max: 11 }), { minLength: 1, maxLength: 3 }),
        share: anyShare,
        advance: anyAdvance(plan),
      }),
    )
    const allCalls = fc.array(anyCalls, { minLength: 1, maxLength: 4 })
    await holds(
      fc.asyncProperty(allCalls, async (calls) => {
        const { clock, key, ratelimit } = newKey(calls[0]?.plan as Plan)
        const models = calls.map(() => new Model())
        for (const { advance } of [{ advance: 0 }, ...calls]) {
          clock.advance(advance)
          const answers = await Promise.all(
            calls.map(({ plan, rates, runs, share }, place) =>
              Promise.all(
                inRuns(rates, runs).map((rate) => {
                  const atLeast = leastOf(plan, rate, share)
                  return ratelimit.limit(`${key} ${place}`, { rate, atLeast, limiter: plan.limiter })
                }),
              ),
            ),
          )
          const expected = calls.map(({ plan, rates, runs, share }, place) =>
            inRuns(rates, runs).map((rate) => {
              const atLeast = leastOf(plan, rate, share)
              return models[place]?.limit(plan, clock.ms, rate, { atLeast })
            }),
          )
          expect(answers.flat()).toEqual(expected.flat().map((each) => about(each)))
        }
      }),
      100,
    )
  })
})

test('retryAfter is exact to the millisecond, and a denial leaves the row as it is', async () => {
  // A bucket that does not start full needs its row: without a row, nothing counts its refills. A change of
  // algorithm would lose the row.
  const plans = anyPlans.map((all) =>
    new Set(all.map(({ algorithm }) => algorithm)).size === 1 ? all : all.map((each) => each.startingFull),
  )
  const situation = plans.chain((all) =>
    fc.constantFrom(...all).chain((plan) =>
      fc.record({
        plan: fc.constant(plan),
        rate: anyRate(plan).filter((rate) => rate > 0 && rate <= plan.rules.capacity),
        before: fc.array(
          fc
            .constantFrom(...all)
            .chain((used) =>
              fc.record({ used: fc.constant(used), rate: anyRate(used), advance: anyAdvance(used) }),
            ),
          { maxLength: 5 },
        ),
      }),
    ),
  )
  await holds(
    fc.asyncProperty(situation, async ({ plan, rate, before }) => {
      const { clock, key, ratelimit } = newKey(plan)
      await ratelimit.limit(key, { rate: -Math.min(plan.rules.capacity, MOST) })
      for (const { used, rate: taken, advance } of before) {
        await ratelimit.limit(key, { rate: taken, limiter: used.limiter })
        clock.advance(advance)
      }
      const { remaining, used } = await ratelimit.getRemaining(key)
      // Infinite remains of a limit without end, which counts up to MOST.
      await ratelimit.limit(key, { rate: Math.min(remaining, MOST - used) })
      const stored = await storedRow(key)
      const denied = await ratelimit.limit(key, { rate })
      fc.pre(!denied.success)
      expect(await storedRow(key)).toEqual(stored)
      clock.advance(denied.retryAfter - 1)
      expect(await ratelimit.limit(key, { rate })).toEqual({
        ...denied,
        remaining: expect.any(Number),
        retryAfter: 1,
      })
      expect(await storedRow(key)).toEqual(stored)
      clock.advance(1)
      expect(await ratelimit.limit(key, { rate })).toMatchObject({ success: true })
    }),
    100,
  )
})

/** The first rate as often as the first run is long, and so on. */
function inRuns(rates: readonly number[], runs: readonly number[]): readonly number[] {
  return runs.flatMap((length, place) => Array<number>(length).fill(rates[place % rates.length] as number))
}

/** So far away, a double cannot tell how much of a debt a millisecond pays. */
const FAR_MS = 1e13
/** Beside so much, fractions are lost, and whole units of a window that fades. */
const MUCH = 2 ** 40

/** An answer to compare with: fractions are not added in the same order. `afterMuch` is a row that had much. */
function about(answer: object | undefined, afterMuch = false): object {
  const near = Object.entries({ ...answer }).flatMap(([name, value]) => {
    if (typeof value !== 'number') return []
    const isAmount = name === 'granted' || name === 'returned'
    if (isAmount) return [[name, expect.closeTo(value, afterMuch ? -1 : 6)]]
    const isFar = value > FAR_MS && value < Number.POSITIVE_INFINITY
    return isFar && (name === 'reset' || name === 'retryAfter') ? [[name, expect.closeTo(value, -1)]] : []
  })
  return { ...answer, ...Object.fromEntries(near) }
}

/** The answer, or the code with which the call is refused. */
async function orCode<T extends object>(call: () => T | Promise<T>): Promise<T | { readonly code: string }> {
  try {
    return await call()
  } catch (error) {
    if (error instanceof RatelimitError) return { code: error.code }
    return { code: (error as Error).message }
  }
}

let keys = 0

function newKey(plan: Plan): { clock: TestClock; key: string; ratelimit: Ratelimit } {
  const clock = new TestClock()
  const ratelimit = new Ratelimit({
    db: database.db,
    limiter: plan.limiter,
    prefix: 'model',
    // After a sweep the intervals of a full bucket start again. That is allowed, but the model does not do it.
    cleanupProbability: 0,
    clock: clock.now,
  })
  return { clock, key: `key ${keys++}`, ratelimit }
}

/** With the version of the row, so that even writing the same again would show. */
function storedRow(key: string): Promise<unknown> {
  return database.rows(
    `select xmin::text, ctid::text, to_jsonb(stored) as stored from rate_limit_ephemeral stored where key = '${key}'`,
  )
}

async function holds<T>(property: fc.IAsyncProperty<T>, onServer: number): Promise<void> {
  // Shrinking a failure takes longer than a test may, so it is done for a given seed only.
  await fc.assert(property, { endOnFailure: process.env['FC_SEED'] === undefined, ...runs(onServer) })
}

function writeNever(answer: unknown): unknown {
  if (typeof answer !== 'object' || answer === null) return answer
  return Object.fromEntries(
    Object.entries(answer).map(([name, value]) => [
      name,
      value === Number.POSITIVE_INFINITY ? 'never' : value,
    ]),
  )
}

/** The shared vectors tell no ended periods, no window that has paid, nor what was given back. */
function ofVectors({ ended: _, returned: __, start: ___, ...answer }: ModelAnswer): ModelAnswer {
  return answer
}

/** What the model knows of a look. */
function left({ limit, remaining, reset }: ModelRemaining): ModelRemaining {
  return { limit, remaining, reset }
}
