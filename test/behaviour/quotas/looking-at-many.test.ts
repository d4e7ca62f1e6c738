import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { HOUR_MS, kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

describe.each(kinds)('$name', ({ limiter, of }) => {
  test('gives the look at each key, in the order of the keys, by one statement', async () => {
    const { db, statements } = watch(database.db)
    const { clock, quota } = quotaOn(database, limiter, { db })
    for (const [key, rate] of Object.entries({ a: 3, b: 12, c: 1 }))
      await quota.limit(key, { rate, force: true })
    clock.advance(HOUR_MS / 4)
    const keys = ['c', 'b', 'new', 'a', 'b']
    for (const options of [{}, { limiter: of(4, '1h').limiter }]) {
      const expected = await Promise.all(keys.map((key) => quota.getRemaining(key, options)))
      const before = statements.length
      expect(await quota.getRemainingAll(keys, options)).toEqual(expected)
      expect(statements).toHaveLength(before + 1)
    }
    expect(statements.at(-1)).not.toContain('for update')
  })

  test('in a transaction counts what the transaction has used', async () => {
    const { quota } = quotaOn(database, limiter)
    await undone(database.db, async (tx) => {
      await quota.limit('a', { rate: 7, tx })
      expect(await quota.getRemainingAll(['b', 'a'], { tx })).toMatchObject([{ used: 0 }, { used: 7 }])
    })
    expect(await quota.getRemainingAll(['a'])).toMatchObject([{ used: 0 }])
  })
})

test('no keys and an unlimited plan need no statement', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db })
  expect(await quota.getRemainingAll([])).toEqual([])
  const limiter = Ratelimit.unlimited()
  const [look] = await Promise.all([quota.getRemainingAll(['a', 'b'], { limiter })])
  expect(look).toEqual([
    await quota.getRemaining('a', { limiter }),
    await quota.getRemaining('b', { limiter }),
  ])
  expect(statements).toEqual([])
})

test('a thousand keys are one statement, and more are refused', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db })
  const keys = Array.from({ length: 1001 }, (_, i) => `key ${i}`)
  await expect(quota.getRemainingAll(keys)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(quota.getRemainingAll('key' as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(quota.getRemainingAll(['a', ''])).rejects.toMatchObject({ code: 'INVALID_KEY' })
  expect(statements).toEqual([])
  expect(await quota.getRemainingAll(keys.slice(1))).toHaveLength(1000)
  expect(statements).toHaveLength(1)
})

test('hashed keys are found', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'], { hashKeys: true })
  await quota.limit('a', { rate: 4 })
  expect(await quota.getRemainingAll(['b', 'a'])).toMatchObject([{ used: 0 }, { used: 4 }])
})

// Where the database is another process: PGlite has the clock of this one.
test.runIf(hasServer())('a wrong guess of the calendar period is corrected', async () => {
  const { config } = quotaOn(database, TEN['calendar month'])
  const { clock, ...timed } = config
  const quota = new Quota(timed as typeof config)
  await quota.limit('a', { rate: 4 })
  const right = Date.now
  Date.now = () => right() - 400 * 24 * HOUR_MS
  try {
    expect(await quota.getRemainingAll(['a', 'b'])).toMatchObject([{ used: 4 }, { used: 0 }])
  } finally {
    Date.now = right
  }
})
