import { and, asc, desc, eq, inArray, sql } from 'drizzle-orm'
import { alias, pgTable, pgView, text } from 'drizzle-orm/pg-core'
import { type RowColumns, type RowOptions, remainingOf, resetOf, usedOf } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import {
  type Limiter,
  type RateLimitTable,
  Ratelimit,
  rateLimitEphemeral,
  rateLimitTables,
} from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { allExamples, similarPlans } from '../../support/limits.ts'
import { runs } from '../../support/runs.ts'
import { HOUR_MS, kinds, oneOfEachKind, type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'

// Rows of the tables in queries of one's own say what a look says.

const database = useDatabase()
const orgs = pgTable('orgs', { id: text('id').notNull() })
const NEW = 'new'

beforeAll(async () => {
  await database.script(`create table orgs (id text not null)`)
})

/** What one query finds of some organisations: their rows are joined where there are any. */
async function joinedAll(
  { prefix, clock }: Pick<QuotaUnderTest, 'prefix' | 'clock'>,
  ids: readonly string[],
  limiter: Limiter,
  table: RateLimitTable = rateLimitEphemeral,
  options: RowOptions = { clock: clock.now },
) {
  const isRow = and(eq(table.prefix, prefix), eq(table.key, orgs.id))
  await database.script(
    `insert into orgs select * from unnest(array['${ids.join("','")}']) except select id from orgs`,
  )
  const found = await database.db
    .select({
      id: orgs.id,
      used: usedOf(table, limiter, options),
      remaining: remainingOf(table, limiter, options),
      reset: resetOf(table, limiter, options),
    })
    .from(orgs)
    .leftJoin(table, isRow)
    .where(inArray(orgs.id, ids))
  return new Map(found.map(({ id, ...numbers }) => [id, numbers]))
}

/** What a query finds of one. */
async function joined(
  set: Pick<QuotaUnderTest, 'prefix' | 'clock'>,
  id: string,
  limiter: Limiter,
  table?: RateLimitTable,
  options?: RowOptions,
) {
  return (await joinedAll(set, [id], limiter, table, options)).get(id)
}

async function looked(quota: Quota, key: string, limiter: Limiter) {
  const { used, remaining, reset } = await quota.getRemaining(key, { limiter })
  return { used, remaining, reset }
}

const plans = [
  ...allExamples.map(({ name, of }) => ({ name, limiter: of(10, '1h').limiter as Limiter })),
  { name: 'hours', limiter: calendarWindow(10, 'hour', { timeZone: 'Asia/Kathmandu' }) },
  {
    name: 'a subscription',
    limiter: calendarWindow(10, 'month', { anchor: new Date('2025-12-30T12:00:00Z') }),
  },
  { name: 'counted without a limit', limiter: Ratelimit.fixedWindow(Number.POSITIVE_INFINITY, '10h') },
  { name: 'suspended', limiter: Ratelimit.slidingWindow(0, '10h') },
]

describe.each(plans)('$name', ({ limiter }) => {
  test('gives the numbers of a look', async () => {
    const set = quotaOn(database, limiter)
    const { quota, clock } = set
    const uses = { little: 1, more: 7, all: 10, debt: 14 }
    for (const [key, rate] of Object.entries(uses)) await quota.limit(key, { rate, force: true })
    for (const [place, other] of oneOfEachKind.entries()) {
      await quota.limit(`other ${place}`, { limiter: other.limiter, rate: 2 })
    }
    const keys = [...Object.keys(uses), ...oneOfEachKind.map((_, place) => `other ${place}`), NEW]
    const { reset } = await quota.getRemaining('all')
    const edges = [reset - 1, reset].filter((time) => time > clock.ms && time < Number.POSITIVE_INFINITY)
    const hours = [0, 1 / HOUR_MS, 0.5, 3.5, 15, 800].map((later) => clock.ms + later * HOUR_MS)
    for (const time of [...hours, ...edges].toSorted((one, other) => one - other)) {
      clock.ms = time
      const looks = await Promise.all(keys.map((key) => looked(quota, key, limiter)))
      const expected = new Map(keys.map((key, place) => [key, looks[place]]))
      expect(await joinedAll(set, keys, limiter)).toEqual(expected)
    }
  })

  test('gives them by the clock of the database', async () => {
    const set = quotaOn(database, limiter)
    const { clock, ...timed } = set.config
    const quota = new Quota(timed as typeof set.config)
    await quota.limit('key', { rate: 3, force: true })
    for (const key of ['key', NEW]) {
      const { used, remaining } = await looked(quota, key, limiter)
      const found = await joined(set, key, limiter, rateLimitEphemeral, {})
      expect(found).toMatchObject({ used: expect.closeTo(used, 2), remaining })
    }
  })
})

test('any row under any plan has the numbers of a look', async () => {
  const anyUse = fc.record({ place: fc.nat(), share: fc.integer({ min: -5, max: 15 }), laterMs: fc.nat() })
  const situations = similarPlans.chain((all) =>
    fc.record({ all: fc.constant(all), uses: fc.array(anyUse, { minLength: 1, maxLength: 6 }) }),
  )
  let keys = 0
  await fc.assert(
    fc.asyncProperty(situations, async ({ all, uses }) => {
      const [own] = all
      if (!own) return
      const set = quotaOn(database, own.limiter)
      const key = `any ${keys++}`
      for (const { place, share, laterMs } of uses) {
        const plan = all[place % all.length] ?? own
        const rate = Math.ceil((Math.min(plan.rules.capacity, 2 ** 49) * share) / 10)
        await set.quota.limit(key, { rate, limiter: plan.limiter, force: true })
        set.clock.advance(laterMs % (2 * plan.rules.periodMs))
        for (const { limiter } of all) {
          const [found, look] = [await joined(set, key, limiter), await looked(set.quota, key, limiter)]
          expect(found).toEqual({ ...look, reset: expect.any(Number) })
          // Where a double is coarse, a time that is worked out is a refill off.
          const offBy = Math.abs((found?.reset ?? 0) - look.reset)
          expect(offBy === 0 || Number.isNaN(offBy) || offBy <= plan.stepMs).toBe(true)
        }
      }
    }),
    runs(60),
  )
})

test('one query lists the customers with the largest share of use', async () => {
  const { quota, prefix, clock } = quotaOn(database, TEN['calendar month'])
  const uses = { p1: 3, p2: 9, p3: 9, p4: 0, p5: 12 }
  for (const [key, rate] of Object.entries(uses)) {
    await database.script(`insert into orgs values ('${key}')`)
    await quota.limit(key, { rate, force: true })
  }
  const stored = alias(rateLimitEphemeral, 'stored')
  const share = sql<number>`${usedOf(stored, TEN['calendar month'], { clock: clock.now })} / 10`.as('share')
  const page = (offset: number) =>
    database.db
      .select({ id: orgs.id, share })
      .from(orgs)
      .leftJoin(stored, and(eq(stored.prefix, prefix), eq(stored.key, orgs.id)))
      .where(sql`${orgs.id} like 'p_'`)
      .orderBy(desc(share), asc(orgs.id))
      .limit(3)
      .offset(offset)
  expect((await page(0)).map(({ id }) => id)).toEqual(['p5', 'p2', 'p3'])
  expect(await page(3)).toEqual([
    { id: 'p1', share: 0.3 },
    { id: 'p4', share: 0 },
  ])
})

test('tables of your own, and a query of the table alone', async () => {
  const tables = rateLimitTables({ ephemeral: 'read', durable: 'stored' })
  const set = quotaOn(database, TEN['fixed window'], { tables, autoMigrate: true, durable: true })
  await set.quota.limit('own', { rate: 4 })
  expect(await joined(set, 'own', TEN['fixed window'], tables.durable)).toMatchObject({
    used: 4,
    remaining: 6,
  })
  const { durable: table } = tables
  const used = usedOf(table, TEN['fixed window'], { clock: set.clock.now })
  const rows = await database.db.select({ key: table.key, used }).from(table).where(sql`${used} > 3`)
  expect(rows).toEqual([{ key: 'own', used: 4 }])
})

test('of a subquery, a CTE and a view', async () => {
  const limiter = TEN['fixed window']
  const { quota, prefix, clock } = quotaOn(database, limiter)
  await quota.limit('key', { rate: 4 })
  await database.script('create view limited as select * from rate_limit_ephemeral')
  const { db } = database
  const rows = db.select().from(rateLimitEphemeral).where(eq(rateLimitEphemeral.prefix, prefix))
  const subquery = rows.as('rows')
  const cte = db.$with('rows').as(rows)
  const view = pgView('limited').as((query) => query.select().from(rateLimitEphemeral))
  const used = (source: RowColumns) => usedOf(source, limiter, { clock: clock.now })
  expect([
    ...(await db.select({ used: used(subquery) }).from(subquery)),
    ...(await db
      .with(cte)
      .select({ used: used(cte) })
      .from(cte)),
    ...(await db
      .select({ used: used(view) })
      .from(view)
      .where(eq(view.prefix, prefix))),
  ]).toEqual([{ used: 4 }, { used: 4 }, { used: 4 }])
})

test('a calendar has numbers for the periods next to the present one, and for no others', async () => {
  const limiter = calendarWindow(10, 'minute')
  const set = quotaOn(database, limiter)
  // The time of the query is not the injected one: as where this machine's clock is wrong.
  const rightly = await joined(set, 'minute', limiter, rateLimitEphemeral, {})
  expect(rightly).toMatchObject({ used: 0, remaining: 10 })
  const right = Date.now
  try {
    for (const [byMs, used] of [
      [-60_000, 0],
      [60_000, 0],
      [-180_000, null],
      [180_000, null],
    ] as const) {
      Date.now = () => right() + byMs
      const expressions = { used: usedOf(rateLimitEphemeral, limiter) }
      Date.now = right
      const [row] = await database.db
        .select(expressions)
        .from(orgs)
        .leftJoin(rateLimitEphemeral, sql`false`)
        .limit(1)
      expect(row).toEqual({ used })
    }
  } finally {
    Date.now = right
  }
})

test('a row of a period after the next has no numbers', async () => {
  const limiter = calendarWindow(10, 'month')
  const set = quotaOn(database, limiter)
  await database.script(`insert into rate_limit_ephemeral
    (prefix, key, count, prev_count, tokens, window_start, expires_at)
    values ('${set.prefix}', 'ahead', 3, 0, 0, '2026-03-01Z', '2026-04-01Z')`)
  set.clock.ms = Date.UTC(2026, 0, 31)
  expect(await joined(set, 'ahead', limiter)).toMatchObject({ used: null, remaining: null, reset: null })
})

test.each([
  ['no limiter', undefined as never, {}, 'INVALID_OPTION'],
  ['an unlimited plan', Ratelimit.unlimited(), {}, 'INVALID_OPTION'],
  [
    'a clock without a time',
    kinds[0]?.limiter as Limiter,
    { clock: () => new Date(Number.NaN) },
    'INVALID_CLOCK',
  ],
])('%s is refused', (_, limiter, options, code) => {
  for (const expressionOf of [usedOf, remainingOf, resetOf]) {
    expect(() => expressionOf(rateLimitEphemeral, limiter, options)).toThrow(
      expect.objectContaining({ code }),
    )
  }
})
