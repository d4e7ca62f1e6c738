import { sql } from 'drizzle-orm'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { runOnce } from '../../../src/kernel/database/run.ts'
import type { Statement } from '../../../src/kernel/database/statement.ts'
import type { Numbers, StateColumn, StoredLimiter } from '../../../src/kernel/limits/algorithm.ts'
import { paramsAt } from '../../../src/kernel/limits/limiter.ts'
import { whenAvailable } from '../../../src/kernel/limits/search.ts'
import { name, Parameters } from '../../../src/kernel/sql/builder.ts'
import { numberArray } from '../../../src/kernel/sql/calls.ts'
import { forEach, SQL_NAMES, STATE_COLUMNS } from '../../../src/kernel/sql/columns.ts'
import { decided } from '../../../src/kernel/sql/decided.ts'
import { advanced, level, paramsOf, stateOf } from '../../../src/kernel/sql/levels.ts'
import { useDatabase } from '../../support/databases.ts'
import { anyPlan, type Plan } from '../../support/limits.ts'
import { anySeed, runs } from '../../support/runs.ts'
import { stored } from '../../support/stored.ts'

// The formulas alone, on many rows at once: `EXACT_STATES=1000000` for a long run, `FC_SEED` for the same rows.

const database = useDatabase()
const STATES_PER_PLAN = runs(1000).numRuns
const STATES = Number(process.env['EXACT_STATES'] ?? 20 * STATES_PER_PLAN)
const NOW = Date.UTC(2026, 5, 1)

/** A row as the table may hold it, the time at which it is read, and what is asked of it. */
interface Case {
  readonly row: Numbers<StateColumn>
  readonly at: number
  readonly rate: number
}

interface Decided {
  readonly isGranted: boolean
  readonly available: number
  readonly used: number
  readonly now: number
  readonly state: Numbers<StateColumn>
  /** The state after the rate was taken, whether or not there was enough. */
  readonly next: Numbers<StateColumn>
}

/** What the columns of the next state are called. */
const NEXT = 'next_'

/** The arithmetic of the statements, on rows that are sent along. */
function arithmeticOf(limiter: StoredLimiter): Statement {
  const parameters = new Parameters(['rate'])
  const columns = ['place', 'at', 'rate', ...limiter.algorithm.columns.map((each) => SQL_NAMES[each])]
  const given = [...STATE_COLUMNS, 'at', 'rate']
  const unnested = sql`unnest(${sql.join(
    given.map((each) => parameters.array(each, 'float8')),
    sql`, `,
  )}) with ordinality as given (${sql.join(
    [...given, 'place'].map((each) => name(each)),
    sql`, `,
  )})`
  const stored = STATE_COLUMNS.map((column) => {
    const value = name(column)
    const isTime = column === 'windowStart' || column === 'lastRefill'
    return sql`${isTime ? sql`to_timestamp(${value} / 1000)` : value} as ${name(SQL_NAMES[column])}`
  })
  const source = sql`(select place, at, rate, ${sql.join(stored, sql`, `)} from ${unnested}) as stored`
  const rows = { source, columns }
  const states = advanced(limiter, rows, name('at'), parameters)
  const form = { action: 'take', takesLess: false } as const
  const offered = decided(limiter.algorithm, form, states, parameters)
  const { columns: own, sql: formulas } = limiter.algorithm
  const [state, now, params] = [stateOf(), name('now'), paramsOf(limiter.algorithm, parameters)]
  const none = sql<number>`0::float8`
  const next = formulas.consume(state, now, name('available'), name('rate'), params, none)
  const { query } = level('next', offered, {
    used: formulas.used(state, now, params),
    ...Object.fromEntries(own.map((each) => [NEXT + SQL_NAMES[each], sql`${next[each]}`])),
  })
  return parameters.render(sql`${query}`)
}

async function decide(limiter: StoredLimiter, cases: readonly Case[]): Promise<Decided[]> {
  const column = (of: (each: Case) => number) => numberArray(cases.map(of))
  const values = {
    ...Object.fromEntries(STATE_COLUMNS.map((each) => [each, column(({ row }) => row[each])])),
    at: column(({ at }) => at),
    rate: column(({ rate }) => rate),
    calls: 1,
  }
  const rows = await runOnce({ db: database.db }, arithmeticOf(limiter), values, paramsAt(limiter, NOW))
  const found: Decided[] = []
  const own = limiter.algorithm.columns
  for (const row of rows) {
    found[Number(row['place']) - 1] = {
      isGranted: Number(row['granted']) >= 1,
      available: Number(row['available']),
      used: Number(row['used']),
      now: Number(row['now']),
      state: stateIn(row, own, ''),
      next: stateIn(row, own, NEXT),
    }
  }
  return found
}

/** The state in the columns whose names begin like this. An algorithm reads only its own. */
function stateIn(
  row: Record<string, unknown>,
  own: readonly StateColumn[],
  begins: string,
): Numbers<StateColumn> {
  return forEach(own, (column) => Number(row[begins + SQL_NAMES[column]])) as Numbers<StateColumn>
}

function anyCase({ limiter, stepMs }: Pick<Plan, 'limiter' | 'stepMs'>): fc.Arbitrary<Case> {
  const { limit, periodMs } = limiter.params
  const { integersOnly } = limiter.algorithm
  const upTo = (most: number) =>
    integersOnly ? fc.maxSafeNat().map((n) => n % (most + 1)) : fc.double({ min: 0, max: most, noNaN: true })
  const ageMs = fc.oneof(
    fc.constantFrom(0, 1, stepMs, stepMs - 1, periodMs, periodMs - 1, -1),
    fc.maxSafeNat().map((n) => n % (3 * periodMs)),
  )
  return fc
    .record({
      count: upTo(2 * limit),
      prevCount: upTo(2 * limit),
      left: fc.oneof(
        upTo(limit),
        upTo(limit).map((debt) => -debt),
      ),
      writtenAgoMs: ageMs,
      rate: upTo(limit).filter((rate) => rate > 1e-6),
    })
    .map(({ count, prevCount, left, writtenAgoMs, rate }) => {
      const written = NOW - writtenAgoMs
      return {
        row: { count, prevCount, tokens: left, windowStart: written, lastRefill: written },
        ...{ at: NOW, rate },
      }
    })
}

/** A window that carries over, of which answers.rollover.test.ts has the model. */
const anyRollover = fc
  .record({
    tokens: fc.constantFrom(1, 10, 97, 1_000_000, 2 ** 52),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    period: fc.constantFrom('hour' as const, 'month' as const),
  })
  .map(({ tokens, share, period }): Pick<Plan, 'limiter' | 'stepMs' | 'name'> => {
    const most = Math.min(tokens, Number.MAX_SAFE_INTEGER - tokens)
    const max = Math.max(1, Math.floor(most * share))
    const limiter = stored(calendarWindow(tokens, period, { rollover: { max } }))
    return { limiter, stepMs: limiter.params.periodMs, name: `rollover ${tokens} ${max} ${period}` }
  })

describe(`${STATES} rows of any content`, () => {
  test('are read alike in SQL and in TypeScript, to the bit; and retryAfter is exact to the millisecond', async () => {
    const seed = anySeed()
    const numRuns = Math.ceil(STATES / STATES_PER_PLAN)
    const plans = [
      ...fc.sample(anyPlan, { seed, numRuns }),
      ...fc.sample(anyRollover, { seed, numRuns: Math.ceil(numRuns / 4) }),
    ]
    let denials = 0
    for (const [i, plan] of plans.entries()) {
      const { limiter } = plan
      const { numbers, tolerance } = limiter.algorithm
      const params = paramsAt(limiter, NOW)
      const cases = fc.sample(anyCase(plan), { seed: seed + i, numRuns: STATES_PER_PLAN })
      const say = (place: number) => `seed ${seed}, ${plan.name}, ${JSON.stringify(cases[place])}`
      const first = await decide(limiter, cases)
      const later: { readonly place: number; readonly at: number; readonly expected: boolean }[] = []
      for (const [place, { state, now, available, used, next, isGranted }] of first.entries()) {
        const { rate } = cases[place] as Case
        const own = numbers.available(state, now, params)
        expect(own, say(place)).toBe(available)
        expect(numbers.used(state, now, params), say(place)).toBe(used)
        expect(numbers.consume(state, now, rate, params, 0), say(place)).toEqual(next)
        expect(rate <= own + tolerance, say(place)).toBe(isGranted)
        // A calendar's limit is whole in its next period, which has other parameters.
        if (limiter.periodAt) continue
        const at = whenAvailable(limiter, { now, state, params }, rate)
        if (isGranted) expect(at, say(place)).toBe(now)
        else later.push({ place, at, expected: true }, { place, at: at - 1, expected: false })
      }
      denials += later.length / 2
      const again = await decide(
        limiter,
        later.map(({ place, at }) => ({ ...(cases[place] as Case), at })),
      )
      for (const [j, { place, expected, at }] of later.entries()) {
        expect(again[j]?.isGranted, `${say(place)} at ${at}`).toBe(expected)
      }
    }
    expect(denials).toBeGreaterThan(STATES / 10)
  }, 3_600_000)
})
