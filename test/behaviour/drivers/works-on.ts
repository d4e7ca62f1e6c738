import { and, eq, type SQL, sql } from 'drizzle-orm'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import { expect } from 'vitest'
import { type Database, Ratelimit, rateLimitDurable } from '../../../src/index.ts'
import { closePeriods } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { type Example, examples } from '../../support/limits.ts'

/** Each method once, on the given database. */
export async function worksOn(
  db: Database,
  prefix: string,
  { transactions = true }: { readonly transactions?: boolean } = {},
): Promise<void> {
  const limiter = Ratelimit.fixedWindow(3, '1h')
  const ratelimit = new Ratelimit({ db, limiter, prefix, durable: true, cleanupProbability: 1 })
  const answers = []
  for (let i = 0; i < 4; i++) answers.push(await ratelimit.limit('key'))
  expect(answers.map(({ success, remaining }) => [success, remaining])).toEqual([
    [true, 2],
    [true, 1],
    [true, 0],
    [false, 0],
  ])
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 0 })
  await ratelimit.resetUsedTokens('key')
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 3 })
  const many = await Promise.all(['key', 'other', 'key'].map((key) => ratelimit.limit(key)))
  expect(many.map(({ remaining }) => remaining)).toEqual([2, 2, 1])
  expect(await ratelimit.cleanup()).toBe(0)
  expect((await usage({ db, prefix, limiter, durable: true })).map(({ key, used }) => [key, used])).toEqual([
    ['key', 2],
    ['other', 1],
  ])
  for (const each of examples) await readsOn(db, `${prefix}, ${each.name}`, each, transactions)
}

/** Each way to read rows once, and what removes them. */
async function readsOn(db: Database, prefix: string, { of }: Example, transactions: boolean): Promise<void> {
  const { limiter, rules } = of(10, '1h')
  const clock = new TestClock()
  const timed = { prefix, clock: clock.now }
  const quota = new Ratelimit({ ...timed, db, limiter, durable: true, cleanupProbability: 0 })
  await quota.limit('more', { rate: 7 })
  await quota.limit('less', { rate: 2 })
  const [more, less, none] = await quota.getRemainingAll(['more', 'less', 'none'])
  expect([more, less, none]).toMatchObject([{ used: 7 }, { used: 2 }, { used: 0 }])
  const list = Object.entries({ more, less }).map(([key, look]) => ({ key, ...look }))
  expect(await usage(quota)).toEqual(list)
  expect(await usage(quota, { limiterOf: () => limiter })).toEqual(list)

  const expressions = [usedOf, remainingOf, resetOf].map((of) =>
    of(rateLimitDurable, limiter, { clock: clock.now }),
  )
  const isRow = and(eq(rateLimitDurable.prefix, prefix), eq(rateLimitDurable.key, 'more'))
  const numbers = sql`select json_build_array(${sql.join(expressions, sql`, `)})::text as numbers`
  const [row] = await rowsOf(db, sql`${numbers} from ${rateLimitDurable} where ${isRow}`)
  expect(JSON.parse(String(row?.['numbers']))).toEqual([more?.used, more?.remaining, more?.reset])

  clock.ms = Math.max(more?.reset ?? 0, less?.reset ?? 0)
  let left = 2
  if (rules.endOf) {
    const ended = { start: more?.start, end: more?.reset }
    expect(await quota.limit('more')).toMatchObject({ ended: { ...ended, used: 7 } })
    if (transactions) {
      const close = (tx: Database) => closePeriods(quota, { tx })
      expect(await db.transaction(close)).toMatchObject([{ key: 'less', ...ended, used: 2 }])
      left--
    }
  }
  clock.advance(366 * 86_400_000)
  expect(await quota.cleanup()).toBe(left)
}

/** Drivers answer with the rows, or with an object that has them. */
async function rowsOf(db: Database, query: SQL): Promise<readonly Record<string, unknown>[]> {
  const answer = (await db.execute(query)) as { readonly rows?: [] } | []
  return 'rows' in answer && answer.rows ? answer.rows : (answer as [])
}
