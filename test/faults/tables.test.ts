import { afterEach, expect, test } from 'vitest'
import { emptyDatabase, migrate, useDatabase } from '../support/databases.ts'
import {
  endPools,
  errorOf,
  expectQuiet,
  limit,
  limitAllOn,
  limiterOn,
  newPrefix,
  openPool,
  SECRET,
  urlOf,
} from './kit.ts'

const database = useDatabase()
afterEach(endPools)

test('checks get MISSING_TABLE while a table is dropped, and succeed after it is made again', async () => {
  const empty = await emptyDatabase()
  const opened = openPool(await urlOf(empty))
  const ratelimit = limiterOn(opened, 'dropped')
  expect(await errorOf(ratelimit.limit(SECRET))).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
  await migrate(empty)
  for (let i = 1; i <= 10; i++) expect(await ratelimit.limit(SECRET)).toMatchObject({ remaining: 100 - i })
  await empty.script('drop table rate_limit_ephemeral, rate_limit_durable')
  expect(await errorOf(ratelimit.limit(SECRET))).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
  expect(await errorOf(limitAllOn(ratelimit))).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
  await migrate(empty)
  for (let i = 1; i <= 10; i++) expect(await ratelimit.limit(SECRET)).toMatchObject({ remaining: 100 - i })
  await expectQuiet(opened)
  await endPools()
  await empty.close()
})

test('checks get MISSING_TABLE while a column is missing, and succeed after it is added', async () => {
  const opened = openPool(await urlOf(database))
  const ratelimit = limiterOn(opened, newPrefix('column'))
  await ratelimit.limit(SECRET)
  await database.script('alter table rate_limit_ephemeral rename column prev_count to old_count')
  try {
    expect(await errorOf(ratelimit.limit(SECRET))).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42703' })
  } finally {
    await database.script('alter table rate_limit_ephemeral rename column old_count to prev_count')
  }
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})

test('a call on a table that another session locks fails by lock_timeout, and nothing is charged', async () => {
  const url = new URL(await urlOf(database))
  url.searchParams.set('options', '-c lock_timeout=100')
  const opened = openPool(url.href)
  const ratelimit = limiterOn(opened, newPrefix('locked'))
  await ratelimit.limit(SECRET)
  const locker = await database.client()
  await locker.query('begin; lock table rate_limit_ephemeral')
  try {
    for (const way of [limit, limitAllOn]) {
      expect(await errorOf(way(ratelimit))).toMatchObject({ code: 'DATABASE', sqlState: '55P03' })
    }
  } finally {
    await locker.query('commit')
  }
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})
