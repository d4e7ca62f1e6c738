import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { rateLimit } from '../../../src/http/hono.ts'
import { type Database, Ratelimit, type RatelimitError } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { errorOf } from '../../support/errors.ts'

// A refused key or rate: the message names the limit and what kind of value came, and never the value.

const db: Database = {
  execute: () => Promise.reject(new Error('no SQL is needed')),
  transaction: () => Promise.reject(new Error('no transaction is needed')),
  refreshMaterializedView: undefined,
}
const api = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(10, '1m'), prefix: 'the api' })
const hashed = new Ratelimit({
  db,
  limiter: Ratelimit.fixedWindow(10, '1m'),
  prefix: 'the api',
  hashKeys: true,
})
const bucket = new Ratelimit({ db, limiter: Ratelimit.tokenBucket(1, '1s', 10), prefix: 'the api' })

const SECRET = 'alice@example.com'

function expectSaid({ message }: RatelimitError, ...words: readonly string[]): void {
  for (const word of ['"the api"', ...words]) expect(message).toContain(word)
  for (const secret of [SECRET, '1.5', '4242']) expect(message).not.toContain(secret)
}

test.each([
  [undefined, 'not undefined'],
  [null, 'not null'],
  [4242, 'not a number'],
  [{ id: SECRET }, 'not an object'],
  [[SECRET], 'not a list'],
  [() => SECRET, 'not a function'],
  ['', 'empty'],
  [`${SECRET}\0`, 'NUL'],
])('a key: %#', async (key, said) => {
  for (const limit of [api, hashed, bucket]) {
    const error = await errorOf(() => limit.limit(key as string))
    expect(error.code).toBe('INVALID_KEY')
    expectSaid(error, said)
  }
})

test.each([
  [1.5, 'not a fraction'],
  [Number.NaN, 'not NaN'],
  [Number.POSITIVE_INFINITY, 'not infinite'],
  [2 ** 60, 'not a larger number'],
  ['4242', 'not a string'],
  [null, 'not null'],
])('a rate: %s', async (rate, said) => {
  const error = await errorOf(() => api.limit('key', { rate: rate as number }))
  expect(error.code).toBe('INVALID_RATE')
  expectSaid(error, 'The rate', said)
})

test('a cost, which is no rate', async () => {
  const passing = new Ratelimit({
    db,
    limiter: Ratelimit.fixedWindow(10, '1m'),
    prefix: 'the api',
    onError: 'allow',
  })
  const reserved = allowed(await passing.reserve('key'))
  for (const [actual, said] of [
    [1.5, 'not a fraction'],
    [-1, '0 or more'],
    [SECRET, 'not a string'],
  ] as const) {
    const error = await errorOf(() => reserved.commit(actual as number))
    expect(error.code).toBe('INVALID_RATE')
    expectSaid(error, 'The cost', said)
    expect(error.message).not.toContain('rate')
  }
})

test('a request without a key, or with a wrong cost', async () => {
  const errors: RatelimitError[] = []
  const app = new Hono().onError((error, c) => {
    errors.push(error as RatelimitError)
    return c.text('', 500)
  })
  app.get('/key', rateLimit({ ratelimit: api, key: () => undefined as unknown as string }), (c) => c.text(''))
  app.get('/cost', rateLimit({ ratelimit: api, key: () => SECRET, rate: () => -4242 }), (c) => c.text(''))
  for (const path of ['/key', '/cost']) await app.request(path)
  const [key, cost] = errors as [RatelimitError, RatelimitError]
  expectSaid(key, 'no key', 'gave undefined')
  expectSaid(cost, 'cost of a request', 'not a negative number')
})
