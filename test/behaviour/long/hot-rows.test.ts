import { lockout } from 'drizzle-ratelimit/lockout'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { range } from '../../support/range.ts'
import { watch } from '../../support/watch.ts'

// Calls of several rows that meet on one row share statements, and are decided as if they came one after the
// other.

const database = useDatabase()

const DAY = 86_400_000

const LIMITERS: Readonly<Record<string, (limit: number) => Limiter>> = {
  'fixed window': (limit) => Ratelimit.fixedWindow(limit, '1d'),
  'sliding window': (limit) => Ratelimit.slidingWindow(limit, '1d'),
  'token bucket': (limit) => Ratelimit.tokenBucket(limit / 4, '1d', limit),
  'continuous bucket': (limit) => Ratelimit.tokenBucket(limit / 4, '1d', limit, { refill: 'continuous' }),
  gcra: (limit) => Ratelimit.gcra(limit, '1d'),
  'calendar window': (limit) => calendarWindow(limit, 'month'),
  rollover: (limit) => calendarWindow(limit, 'month', { rollover: { max: 5 } }),
  lockout: (limit) => lockout(limit, '1d', { block: '1h', factor: 2 }),
}
const ALL = [...Object.keys(LIMITERS), 'credits']

/** A limit for everybody and one for each user, by one clock, and the statements that they send. */
async function world(algorithm: string, limit: number, options: { readonly thresholds?: number[] } = {}) {
  const clock = new TestClock()
  const { db, statements } = watch(database.db)
  const of = (prefix: string, limiter: Limiter, more: object = {}) =>
    new Quota({
      ...{ db, limiter, prefix: `${prefix} ${worlds}`, clock: clock.now, durable: true, timeout: false },
      ...{ cleanupProbability: 0, ...more },
    })
  const granted = async (amount: number) => {
    const own = { db, prefix: `all ${worlds}`, clock: clock.now, timeout: false, ...options } as const
    const credits = new Credits({ ...own, cleanupProbability: 0 })
    await credits.grant('all', amount)
    return credits
  }
  worlds++
  const limiter = LIMITERS[algorithm]?.(limit)
  const everybody = limiter ? of('all', limiter, options) : await granted(limit)
  const users = of('user', Ratelimit.fixedWindow(9, '1d'))
  await everybody.limit('all')
  for (const i of range(40)) await users.limit(String(i))
  statements.length = 0
  return { clock, everybody, users, statements }
}
let worlds = 0

/** Does the work one after the other, and in a world of the same past together. Both have the same answers. */
async function alike<World, T>(
  make: () => Promise<World>,
  work: (world: World) => readonly (() => Promise<T>)[],
): Promise<{ readonly together: World; readonly answers: readonly T[] }> {
  const [apart, together] = [await make(), await make()]
  const expected: T[] = []
  for (const one of work(apart)) expected.push(await one())
  const answers = await Promise.all(work(together).map((one) => one()))
  expect(answers).toEqual(expected)
  return { together, answers }
}

test.each(ALL)(
  '%s: lists that ask different rates of one row are exact, and share a statement',
  async (algorithm) => {
    const rates = range(40).map((i) => 1 + ((i * 5) % 7))
    const { together, answers } = await alike(
      async () => {
        const made = await world(algorithm, 60)
        // These users have used up their own limit.
        for (const i of [3, 8, 21]) await made.users.limit(String(i), { rate: 8 })
        made.statements.length = 0
        return made
      },
      ({ everybody, users }) =>
        rates.map((rate, i) => async () => {
          const { success, results } = await limitAll([
            { ratelimit: everybody, key: 'all', rate },
            { ratelimit: users, key: String(i) },
          ])
          return { success, results }
        }),
    )
    expect(together.statements).toHaveLength(1)
    const admitted = rates.filter((_, i) => answers[i]?.success)
    expect(admitted.reduce((sum, rate) => sum + rate, 1)).toBe(60)
    for (const i of [3, 8, 21]) expect(answers[i]?.success).toBe(false)
  },
)

test.each(ALL)(
  '%s: estimates of one key that are named at once share a statement, and so do their settlements',
  async (algorithm) => {
    const rates = range(30).map((i) => 1 + (i % 4))
    const { together } = await alike(
      () => world(algorithm, 60, { thresholds: [0.5, 0.9] }),
      ({ everybody }) =>
        rates.map((rate, i) => async () => {
          const { success, remaining } = await everybody.reserve('all', {
            rate,
            id: `job ${i}`,
            expires: '9d',
          })
          return { success, remaining }
        }),
    )
    expect(together.statements).toHaveLength(1)
    await alike(
      async () => {
        const made = await world(algorithm, 90, { thresholds: [0.3, 0.5, 0.9] })
        for (const [i, rate] of rates.entries())
          await made.everybody.reserve('all', { rate, id: `job ${i}`, expires: '9d' })
        made.statements.length = 0
        return made
      },
      ({ everybody }) =>
        rates.map(
          (rate, i) => () =>
            everybody.settle({ key: 'all', id: `job ${i}` }, i % 3 === 0 ? rate + (i % 5) + 1 : i % rate),
        ),
    ).then(({ together: { statements } }) => expect(statements).toHaveLength(1))
  },
)

test.each(ALL)(
  '%s: what comes back at once never exceeds the capacity, and what was used meanwhile counts',
  async (algorithm) => {
    const { together } = await alike(
      async () => {
        const made = await world(algorithm, 60)
        for (const i of range(20))
          await made.everybody.reserve('all', { rate: 2, id: `old ${i}`, expires: '9d' })
        made.clock.advance(1.2 * DAY)
        for (const i of range(4))
          await made.everybody.reserve('all', { rate: 1, id: `new ${i}`, expires: '9d' })
        return made
      },
      ({ everybody }) => [
        ...range(20).map((i) => () => everybody.settle({ key: 'all', id: `old ${i}` }, i % 5 === 4 ? 4 : 0)),
        ...range(4).map((i) => () => everybody.settle({ key: 'all', id: `new ${i}` }, i)),
      ],
    )
    const { remaining, limit } = await together.everybody.getRemaining('all')
    expect(remaining).toBeLessThanOrEqual(limit)
  },
)

test('of estimates and ids that are used at once, each charges the hot row once', async () => {
  const { everybody, statements } = await world('fixed window', 500)
  const reserve = (i: number) => everybody.reserve('all', { rate: 2, id: `job ${i}`, expires: '1h' })
  const once = (i: number) => everybody.limit('all', { once: { id: `event ${i}`, for: '1h' } })
  const twice = [...range(20), ...range(20)]
  const reserved = await Promise.all(twice.map(reserve))
  const limited = await Promise.all(twice.map(once))
  const isRepeated = (answer: object) => 'repeated' in answer
  for (const answers of [reserved, limited])
    expect(answers.map(isRepeated)).toEqual(twice.map((_, i) => i >= 20))
  expect(await everybody.getRemaining('all')).toMatchObject({ used: 61 })
  expect(statements.length).toBeLessThan(20)
})

test('if another process uses one of the ids first, no list is charged twice, and none is lost', async () => {
  const { everybody } = await world('token bucket', 500)
  // It has inserted the row when the statement finds that it is missing.
  await database.script(`
    create sequence raced;
    create function race() returns trigger language plpgsql as $$ begin
      if new.key like '%event 7%' and pg_trigger_depth() = 1 and nextval('raced') = 1 then
        insert into rate_limit_durable select (new).*;
      end if;
      return new;
    end $$;
    create trigger race before insert on rate_limit_durable for each row execute function race()`)
  try {
    const answers = await Promise.all(
      range(20).map((i) => everybody.limit('all', { once: { id: `event ${i}`, for: '1h' } })),
    )
    const charged = answers.filter((answer) => !('repeated' in answer))
    expect(await database.rows('select is_called from raced')).toEqual([{ is_called: true }])
    expect(await everybody.getRemaining('all')).toMatchObject({ used: 1 + charged.length })
    expect(charged.map(({ remaining }) => remaining).toSorted((one, other) => other - one)).toEqual(
      charged.map((_, i) => 498 - i),
    )
    expect(charged.length).toBeGreaterThanOrEqual(19)
  } finally {
    await database.script('drop function race cascade; drop sequence raced')
  }
})

test('processes that meet on one row lose nothing', async () => {
  const clock = new TestClock()
  const processes = range(4).map(() => {
    const of = (prefix: string, limiter: Limiter) =>
      new Quota({
        durable: false,
        db: database.connect(3).db,
        limiter,
        prefix,
        clock: clock.now,
        timeout: false,
      })
    return { everybody: of('everybody', Ratelimit.fixedWindow(300, '1d')) }
  })
  const [first] = processes as [(typeof processes)[number]]
  await first.everybody.limit('all', { rate: 0 })
  const taken = await Promise.all(
    processes.flatMap(({ everybody }, process) =>
      range(50).map(async (i) => {
        const id = `job ${process} ${i}`
        const { success } = await everybody.reserve('all', { rate: 1 + (i % 4), id, expires: '1h' })
        if (!success) return 0
        const actual = i % 3
        await everybody.settle({ key: 'all', id }, actual)
        return actual
      }),
    ),
  )
  const sum = taken.reduce((all, each) => all + each, 0)
  expect(await first.everybody.getRemaining('all')).toMatchObject({ used: sum })
})
