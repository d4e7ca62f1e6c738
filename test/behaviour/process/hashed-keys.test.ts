import { createHash, createHmac } from 'node:crypto'
import { usage } from 'drizzle-ratelimit/reports'
import { expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(10, '1h')

const SECRET = 'the secret of these tests'

function hashing(prefix: string, hashKeys: string | true = true): Ratelimit {
  return new Ratelimit({ db: database.db, limiter, prefix, durable: true, hashKeys, cleanupProbability: 0 })
}

test.each([
  ['the SHA-256 of a key', true, createHash('sha256')],
  ['with a secret the HMAC-SHA-256', SECRET, createHmac('sha256', SECRET)],
] as const)('the table holds %s, and every method finds it', async (_, hashKeys, hash) => {
  const ratelimit = hashing('hashed', hashKeys)
  const key = 'alice@example.com'
  const stored = hash.update(key).digest('hex')
  await ratelimit.limit(key, { rate: 2 })
  await limitAll([{ ratelimit, key, rate: 3 }])
  const reserved = await ratelimit.reserve(key, { rate: 4 })
  if (reserved.success) await reserved.commit(1)
  await database.db.transaction((tx) => ratelimit.limit(key, { tx }))
  expect(await ratelimit.blockUntilReady(key, 0)).toMatchObject({ remaining: 2 })
  expect(await ratelimit.getRemaining(key)).toMatchObject({ used: 8 })
  expect(await usage({ db: database.db, prefix: 'hashed', limiter, durable: true })).toMatchObject([
    { key: stored, used: 8 },
  ])
  await ratelimit.resetUsedTokens(key)
  expect(await database.rows(`select * from rate_limit_durable where prefix = 'hashed'`)).toEqual([])
})

test('another secret makes another row, and a short secret is refused by an error without it', async () => {
  for (const secret of [SECRET, `${SECRET}.`, SECRET]) await hashing('secrets', secret).limit('key')
  const used = (await usage({ db: database.db, prefix: 'secrets', limiter, durable: true })).map(
    (row) => row.used,
  )
  expect(used.toSorted()).toEqual([1, 2])
  const error = await errorOf(async () => hashing('secrets', 'fifteen letters'))
  expect(error).toMatchObject({ code: 'INVALID_OPTION', message: expect.not.stringMatching('fifteen') })
})

test('a key may have any length, and must still be text that Postgres could store', async () => {
  const ratelimit = hashing('long')
  expect(await ratelimit.limit('k'.repeat(100_000))).toMatchObject({ success: true })
  for (const key of ['', 'a\0b', '\ud800', 5 as unknown as string]) {
    expect(await errorOf(() => ratelimit.limit(key))).toMatchObject({ code: 'INVALID_KEY' })
  }
})

test('two refused requests of one call end it once, and leave no error that nobody handles', async () => {
  const unhandled: unknown[] = []
  const listen = (error: unknown) => unhandled.push(error)
  process.on('unhandledRejection', listen)
  const plain = new Ratelimit({ db: database.db, limiter, prefix: 'not hashed' })
  const requests = [hashing('refused'), plain].map((ratelimit) => ({ ratelimit, key: '' }))
  expect(await errorOf(() => limitAll(requests))).toMatchObject({ code: 'INVALID_KEY' })
  await new Promise(setImmediate)
  process.off('unhandledRejection', listen)
  expect(unhandled).toEqual([])
})
