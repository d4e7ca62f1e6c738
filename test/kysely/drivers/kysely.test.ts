import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import { fromKysely, remainingOf, resetOf, usedOf } from 'drizzle-ratelimit/kysely'
import { Members } from 'drizzle-ratelimit/members'
import { Quota, settleExpired } from 'drizzle-ratelimit/quota'
import type { Kysely } from 'kysely'
import { beforeAll, describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { kyselyOf } from '../../support/kysely.ts'

const database = useDatabase()
let kysely: Kysely<{ jobs: { name: string } }>
beforeAll(async () => {
  kysely = kyselyOf(database)
  await database.script('create table jobs (name text)')
})

const limiter = Ratelimit.tokenBucket(1, '1h', 5)
const undo = new Error('undo')

describe('on a Kysely database', () => {
  test('a limiter runs', async () => {
    const ratelimit = new Ratelimit({
      db: fromKysely(kysely),
      limiter,
      prefix: 'runs',
      cleanupProbability: 1,
    })
    const answers = await Promise.all(['a', 'a', 'b'].map((key) => ratelimit.limit(key)))
    expect(answers.map(({ remaining }) => remaining)).toEqual([4, 3, 4])
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 3 })
    await ratelimit.resetUsedTokens('a')
    expect(await ratelimit.limit('a', { rate: 5 })).toMatchObject({ success: true })
    expect(await ratelimit.cleanup()).toBe(0)
  })

  test('limitAll opens a transaction of Kysely', async () => {
    const one = new Ratelimit({ db: fromKysely(kysely), limiter, prefix: 'all one' })
    const other = new Ratelimit({
      db: fromKysely(kysely),
      limiter: Ratelimit.fixedWindow(2, '1h'),
      prefix: 'all other',
      durable: true,
    })
    const requests = [one, other].map((ratelimit) => ({ ratelimit, key: 'key' }))
    const successes = []
    for (let i = 0; i < 3; i++) successes.push((await limitAll(requests)).success)
    expect(successes).toEqual([true, true, false])
    expect(await one.getRemaining('key')).toMatchObject({ remaining: 3 })
  })

  test('an error is a RatelimitError with its SQLSTATE', async () => {
    const missing = new Ratelimit({ db: fromKysely(kysely), limiter, prefix: 'errors' })
    await database.script('alter table rate_limit_ephemeral rename to away')
    const error = await missing.limit('key').catch((reason: unknown) => reason)
    await database.script('alter table away rename to rate_limit_ephemeral')
    expect(error).toBeInstanceOf(RatelimitError)
    expect(error).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
  })
})

describe('in a Kysely transaction', () => {
  test('a rollback undoes the charge together with the work', async () => {
    const ratelimit = new Ratelimit({
      db: fromKysely(kysely),
      limiter,
      prefix: 'rollback',
      cleanupProbability: 1,
    })
    await ratelimit.limit('key')
    const undone = kysely.transaction().execute(async (trx) => {
      expect(await ratelimit.limit('key', { rate: 3, tx: fromKysely(trx) })).toMatchObject({ remaining: 1 })
      await trx.insertInto('jobs').values({ name: 'undone' }).execute()
      throw undo
    })
    await expect(undone).rejects.toBe(undo)
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 4 })
    expect(await database.rows('select * from jobs')).toEqual([])
  })

  test('a commit keeps both', async () => {
    const ratelimit = new Ratelimit({ db: fromKysely(kysely), limiter, prefix: 'commit' })
    await kysely.transaction().execute(async (trx) => {
      await ratelimit.limit('key', { rate: 3, tx: fromKysely(trx) })
      await trx.insertInto('jobs').values({ name: 'kept' }).execute()
    })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 2 })
    expect(await database.rows('select * from jobs')).toEqual([{ name: 'kept' }])
  })

  test('a limiter that is built on it is joined', async () => {
    const undone = kysely.transaction().execute(async (trx) => {
      const ratelimit = new Ratelimit({ db: fromKysely(trx), limiter, prefix: 'built' })
      await ratelimit.limit('key')
      await limitAll([{ ratelimit, key: 'key' }])
      await expect(ratelimit.blockUntilReady('key', 0)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
      throw undo
    })
    await expect(undone).rejects.toBe(undo)
    expect(await database.rows(`select * from rate_limit_ephemeral where prefix = 'built'`)).toEqual([])
  })
})

describe('in a Kysely transaction, a call of several statements takes a savepoint', () => {
  const rowsOf = (prefix: string) =>
    database.rows('select key from rate_limit_durable where prefix = $1 order by key', [prefix])

  test('of members: a denial leaves no head, and the rest of the transaction goes on', async () => {
    const seats = new Members({ db: fromKysely(kysely), prefix: 'kysely seats', limit: 1 })
    await kysely.transaction().execute(async (trx) => {
      const tx = fromKysely(trx)
      expect(await seats.add('none', 'a', { limit: 0, tx })).toMatchObject({ success: false })
      expect(await seats.add('team', 'a', { tx })).toMatchObject({ isNew: true, remaining: 0 })
      expect(await seats.add('team', 'b', { tx })).toMatchObject({ success: false })
      expect(await seats.remove('team', 'b', { tx })).toBe(false)
      await trx.insertInto('jobs').values({ name: 'seated' }).execute()
    })
    expect(await seats.list('team')).toMatchObject([{ member: 'a' }])
    expect((await rowsOf('kysely seats')).map(({ key }) => key)).toEqual(['team/', 'team/61'])
    expect(await database.rows(`select * from jobs where name = 'seated'`)).toHaveLength(1)
  })

  test('of dated credits', async () => {
    const credits = new Credits({ db: fromKysely(kysely), prefix: 'kysely dated', dated: true })
    await credits.grant('org', 10, { id: 'first' })
    const undone = kysely.transaction().execute(async (trx) => {
      const tx = fromKysely(trx)
      expect(await credits.limit('org', { rate: 4, tx })).toMatchObject({ remaining: 6 })
      expect(await credits.limit('org', { rate: 7, tx })).toMatchObject({ success: false, remaining: 6 })
      throw undo
    })
    await expect(undone).rejects.toBe(undo)
    expect(await credits.getRemaining('org')).toMatchObject({ remaining: 10 })
  })

  test('of expired reservations', async () => {
    let ms = Date.UTC(2026, 2, 10)
    const clock = () => new Date(ms)
    const tokens = new Quota({ db: fromKysely(kysely), limiter, prefix: 'kysely tokens', clock })
    await tokens.reserve('org', { rate: 3, id: 'job', expires: '1m' })
    ms += 60_000
    const ended = await kysely
      .transaction()
      .execute((trx) => settleExpired(tokens, { tx: fromKysely(trx), as: 'release' }))
    expect(ended).toMatchObject([{ key: 'org', id: 'job', rate: 3, returned: 3 }])
    expect(await tokens.getRemaining('org')).toMatchObject({ used: 0 })
  })
})

test('rows in a query of Kysely have the numbers of a look', async () => {
  const limiters = [
    calendarWindow(10, 'month', { timeZone: 'Europe/Berlin' }),
    Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 4 }),
    Ratelimit.slidingWindow(Number.POSITIVE_INFINITY, '1h'),
  ]
  await database.script(
    `create table customers (id text); insert into customers values ('a'), ('b'), ('new')`,
  )
  for (const [place, plan] of limiters.entries()) {
    const clock = () => new Date('2026-03-10T12:00:00Z')
    const prefix = `kysely ${place}`
    const quota = new Ratelimit({ db: fromKysely(kysely), limiter: plan, prefix, durable: true, clock })
    for (const [key, rate] of Object.entries({ a: 2, b: 7 })) await quota.limit(key, { rate, force: true })
    const numbers = [usedOf, remainingOf, resetOf].map((of) => of('stored row', plan, { clock }))
    const [used, remaining, reset] = numbers as [
      (typeof numbers)[0],
      (typeof numbers)[0],
      (typeof numbers)[0],
    ]
    const rows = await (kysely as unknown as Kysely<Queried>)
      .selectFrom('customers')
      .leftJoin('rate_limit_durable as stored row', (join) =>
        join.onRef('stored row.key', '=', 'customers.id').on('stored row.prefix', '=', prefix),
      )
      .select(['customers.id', used.as('used'), remaining.as('remaining'), reset.as('reset')])
      .orderBy('customers.id')
      .execute()
    const looks = await quota.getRemainingAll(['a', 'b', 'new'])
    expect(rows).toEqual(
      ['a', 'b', 'new'].map((id, i) => {
        const { used: amount, remaining: left, reset: at } = looks[i] ?? {}
        return { id, used: amount, remaining: left, reset: at }
      }),
    )
  }
})

test('what credits have, in a query of Kysely', async () => {
  const credits = new Credits({ db: fromKysely(kysely), prefix: 'kysely credits' })
  await credits.grant('a', 10)
  await credits.limit('a', { rate: 3 })
  const columns = { used: usedOf('stored', credits), remaining: remainingOf('stored', credits) }
  const rows = await (kysely as unknown as Kysely<Queried>)
    .selectFrom('rate_limit_durable as stored')
    .where('stored.prefix', '=', 'kysely credits')
    .select(['stored.key', columns.used.as('used'), columns.remaining.as('remaining')])
    .execute()
  expect(rows).toEqual([{ key: 'a', used: 3, remaining: 7 }])
})

interface Queried {
  customers: { id: string }
  rate_limit_durable: { prefix: string; key: string }
}
