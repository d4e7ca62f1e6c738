import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { Ratelimit, usage } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { errorOf } from '../support/errors.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(10, '1h')

function hashing(prefix: string): Ratelimit {
  return new Ratelimit({
    db: database.db,
    limiter,
    prefix,
    durable: true,
    hashKeys: true,
    cleanupProbability: 0,
  })
}

test('the table holds the SHA-256 of a key, and every method finds it', async () => {
  const ratelimit = hashing('hashed')
  const key = 'alice@example.com'
  const stored = createHash('sha256').update(key).digest('hex')
  await ratelimit.limit(key, { rate: 2 })
  await Ratelimit.limitAll([{ ratelimit, key, rate: 3 }])
  const reserved = await ratelimit.reserve(key, { rate: 4 })
  if (reserved.success) await reserved.commit(1)
  await database.db.transaction((tx) => ratelimit.limit(key, { tx }))
  expect(await ratelimit.blockUntilReady(key, 0)).toMatchObject({ remaining: 2 })
  expect(await ratelimit.getRemaining(key)).toMatchObject({ used: 8 })
  expect(await usage(database.db, { prefix: 'hashed', limiter })).toMatchObject([{ key: stored, used: 8 }])
  await ratelimit.resetUsedTokens(key)
  expect(await database.rows(`select * from rate_limit_durable where prefix = 'hashed'`)).toEqual([])
})

test('a key may have any length, and must still be text that Postgres could store', async () => {
  const ratelimit = hashing('long')
  expect(await ratelimit.limit('k'.repeat(100_000))).toMatchObject({ success: true })
  for (const key of ['', 'a\0b', '\ud800', 5 as unknown as string]) {
    expect(await errorOf(() => ratelimit.limit(key))).toMatchObject({ code: 'INVALID_KEY' })
  }
})
