import { readFile } from 'node:fs/promises'
import { type pgSchema, pgTable, text as textColumn } from 'drizzle-orm/pg-core'
import { denied, usage } from 'drizzle-ratelimit/reports'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  checkTables,
  type Duration,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  type RatelimitError,
  rateLimitTables,
  storageSql,
} from '../../../src/index.ts'
import type { Database } from '../../../src/kernel/database/database.ts'
import { parseDuration } from '../../../src/kernel/duration.ts'
import { closePeriods, reserveAll, spend } from '../../../src/quota/index.ts'
import { errorOf } from '../../support/errors.ts'

// No database: each of these is refused before any SQL, and a query would fail the test.
let queries = 0
beforeEach(() => {
  queries = 0
})
const db: Database = {
  execute: () => {
    queries++
    return Promise.resolve([])
  },
  transaction: () => Promise.reject(new Error('no transaction is needed')),
  refreshMaterializedView: undefined,
}

/** The error of a call that is refused before any SQL. */
async function errorWithoutSql(call: () => unknown): Promise<RatelimitError> {
  const error = await errorOf(call)
  expect(queries).toBe(0)
  return error
}

const SECRET = 'alice@example.com'
const limiter = Ratelimit.fixedWindow(10, '1m')
/** A table of the application. */
const orgs = pgTable('orgs', { key: textColumn('key') })
const ratelimit = new Ratelimit({ db, limiter, prefix: 'p' })
const bucket = new Ratelimit({ db, limiter: Ratelimit.tokenBucket(1, '1s', 10), prefix: 'p' })

/** Values that TypeScript would refuse. */
function untyped<T>(value: unknown): T {
  return value as T
}

describe.each([
  ['no string', 5],
  ['undefined', undefined],
  ['empty', ''],
  ['with NUL', `${SECRET}\0`],
  ['a lone surrogate', `${SECRET}\ud800`],
  ['longer than 1,024 bytes with its prefix', `${SECRET}${'é'.repeat(504)}`],
])('a key or prefix that is %s', (_, text) => {
  test.each([
    ['limit', () => ratelimit.limit(untyped(text))],
    ['getRemaining', () => ratelimit.getRemaining(untyped(text))],
    ['blockUntilReady', () => ratelimit.blockUntilReady(untyped(text), 0)],
    ['resetUsedTokens', () => ratelimit.resetUsedTokens(untyped(text))],
  ])('is not a key: %s', async (_name, call) => {
    const error = await errorWithoutSql(call)
    expect(error.code).toBe('INVALID_KEY')
    expect(String(error.stack)).not.toContain(SECRET)
  })

  test('is not a prefix', async () => {
    const prefix = typeof text === 'string' && text.length > 500 ? `${text}é` : text
    const error = await errorWithoutSql(() => new Ratelimit({ db, limiter, prefix: untyped(prefix) }))
    expect(error.code).toBe('INVALID_PREFIX')
    expect(String(error.stack)).not.toContain(SECRET)
  })
})

test('prefix and key have 1,024 bytes together', async () => {
  await expect(errorWithoutSql(() => ratelimit.limit('k'.repeat(1024)))).resolves.toMatchObject({
    code: 'INVALID_KEY',
  })
  // The call reaches the database, which has no row here.
  await expect(ratelimit.limit('k'.repeat(1023))).rejects.toMatchObject({ code: 'DATABASE' })
  expect(queries).toBeGreaterThan(0)
})

describe('a rate that is not a cost', () => {
  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5, -1.5, 2 ** 53, '1', null])(
    'windows: %s',
    async (rate) => {
      expect((await errorWithoutSql(() => ratelimit.limit('key', { rate: untyped(rate) }))).code).toBe(
        'INVALID_RATE',
      )
    },
  )
  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 2 ** 54, -(2 ** 54), '1'])(
    'token buckets: %s',
    async (rate) => {
      expect((await errorWithoutSql(() => bucket.limit('key', { rate: untyped(rate) }))).code).toBe(
        'INVALID_RATE',
      )
    },
  )
})

test.each(['no', 1, null])('a force of %s', async (value) => {
  const force = untyped<boolean>(value)
  const calls = [
    () => ratelimit.limit('key', { force }),
    () => ratelimit.limit('key', { rate: -1, force }),
    () => limitAll([{ ratelimit, key: 'key', force }]),
  ]
  for (const call of calls) expect((await errorWithoutSql(call)).code).toBe('INVALID_OPTION')
})

test.each([false, 0, '', Number.NaN])('a tx of %s is not taken for none', async (value) => {
  const tx = untyped<Database>(value)
  const calls = [
    () => ratelimit.limit('key', { tx }),
    () => ratelimit.getRemaining('key', { tx }),
    () => ratelimit.reserve('key', { tx }),
    () => ratelimit.resetUsedTokens('key', { tx }),
    () => limitAll([{ ratelimit, key: 'key' }], { tx }),
    () => spend([{ ratelimit, key: 'key' }], { rate: 1, tx }),
  ]
  for (const call of calls) expect((await errorWithoutSql(call)).code).toBe('INVALID_OPTION')
})

test.each([5, 'x', null])('options that are %s are not ignored', async (value) => {
  const options = untyped<object>(value)
  const calls = [
    () => ratelimit.limit('key', options),
    () => ratelimit.getRemaining('key', options),
    () => limitAll([{ ratelimit, key: 'key' }], options),
  ]
  for (const call of calls) expect((await errorWithoutSql(call)).code).toBe('INVALID_OPTION')
})

test.each([{}, { algorithm: {} }, { stored: true, algorithm: { numbers: {}, columns: [] } }])(
  'a limiter that was not made by the package is refused: %o',
  async (forged) => {
    const made = untyped<typeof limiter>(forged)
    const calls = [
      () => new Ratelimit({ db, limiter: made, prefix: 'p' }),
      () => ratelimit.limit('key', { limiter: made }),
    ]
    for (const call of calls) expect((await errorWithoutSql(call)).code).toBe('INVALID_OPTION')
  },
)

test('a Postgres schema that pgSchema has not made', async () => {
  const schema = untyped<ReturnType<typeof pgSchema>>('limits')
  expect((await errorWithoutSql(() => rateLimitTables({ schema }))).code).toBe('INVALID_OPTION')
})

test("the text 'false' is refused as a switch", async () => {
  const off = untyped<boolean>('false')
  const durable = { prefix: 'switch', limiter, durable: off }
  const transaction: Database = { ...db, rollback: undefined }
  const calls = [
    () => usage({ ...durable, db }),
    () => denied({ db, prefix: 'switch', durable: off }),
    () => closePeriods({ ...durable, db }, { tx: transaction }),
    () => new Ratelimit(untyped<RatelimitConfig>({ ...durable, db })),
    () => storageSql(undefined, { logged: off }),
    () => checkTables(db, undefined, { logged: off }),
  ]
  for (const call of calls) {
    expect(await errorWithoutSql(call)).toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringMatching(/^(durable|logged) must be true or false\.$/),
    })
  }
})

test('lists with holes are refused', async () => {
  const hole = new Array(1)
  expect((await errorWithoutSql(() => ratelimit.getRemainingAll(hole))).code).toBe('INVALID_KEY')
  const calls = [() => limitAll(hole), () => reserveAll(hole), () => spend(hole, { rate: 1 })]
  for (const call of calls) expect((await errorWithoutSql(call)).code).toBe('INVALID_OPTION')
})

test('what is no Ratelimit of this version of the package is refused', async () => {
  const requests = [{ ratelimit: untyped<Ratelimit>({ ...ratelimit }), key: 'key' }]
  const calls = [() => limitAll(requests), () => reserveAll(requests), () => spend(requests, { rate: 1 })]
  for (const call of calls) {
    expect(await errorWithoutSql(call)).toMatchObject({
      code: 'INVALID_OPTION',
      message: 'Each ratelimit must be a limiter of this version of the package.',
    })
  }
})

test('the parts of a Ratelimit are under the name of its version', async () => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  expect(Object.getOwnPropertySymbols(ratelimit).map(Symbol.keyFor)).toEqual([`drizzle-ratelimit@${version}`])
})

describe('limits', () => {
  const wrong = [-1, Number.NaN, Number.NEGATIVE_INFINITY, 2 ** 53, untyped<number>('5')]
  test.each([...wrong, 1.5])('a window of %s tokens', async (tokens) => {
    expect((await errorWithoutSql(() => Ratelimit.fixedWindow(tokens, '1m'))).code).toBe('INVALID_LIMIT')
    expect((await errorWithoutSql(() => Ratelimit.slidingWindow(tokens, '1m'))).code).toBe('INVALID_LIMIT')
  })
  test.each([...wrong, 0, Number.POSITIVE_INFINITY])('a bucket with %s', async (tokens) => {
    expect((await errorWithoutSql(() => Ratelimit.tokenBucket(tokens, '1m', 10))).code).toBe('INVALID_LIMIT')
    expect((await errorWithoutSql(() => Ratelimit.tokenBucket(1, '1m', tokens))).code).toBe('INVALID_LIMIT')
  })
  test.each([-1, 11, Number.NaN])('a bucket of 10 with %s tokens at first', async (initialTokens) => {
    const error = await errorWithoutSql(() => Ratelimit.tokenBucket(1, '1m', 10, { initialTokens }))
    expect(error.code).toBe('INVALID_LIMIT')
  })
  test('a bucket that takes longer than a hundred years to fill', async () => {
    expect((await errorWithoutSql(() => Ratelimit.tokenBucket(1, '365d', 101))).code).toBe('INVALID_LIMIT')
  })
  test('what a bucket may just be', () => {
    const [least, most] = [0.000001, 2 ** 53 - 1]
    expect(Ratelimit.tokenBucket(most, 1, least).params.periodMs).toBe(1)
    expect(Ratelimit.gcra(most, 1, { burst: least }).params.periodMs).toBe(1)
    expect(Ratelimit.tokenBucket(1, '36525d', 1).params.periodMs).toBe(36_525 * 86_400_000)
  })
  test('a bucket with a tiny capacity', async () => {
    expect((await errorWithoutSql(() => Ratelimit.tokenBucket(1, '1s', 1e-7))).code).toBe('INVALID_LIMIT')
  })
  test('a refill of an unknown kind', async () => {
    const error = await errorWithoutSql(() => Ratelimit.tokenBucket(1, '1m', 10, { refill: untyped('lazy') }))
    expect(error.code).toBe('INVALID_OPTION')
  })
})

describe('durations', () => {
  const wrong = ['', '10', 's', '10 seconds', '1w', '-1s', '0s', '0.5ms', '1e3s', 'Infinityd', '40000d']
  const numbers = [0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 4e12, null, {}, 5n, Symbol('1s')]
  test.each([...wrong, ...numbers].map((each) => [each]))('%s', async (duration) => {
    const calls = [
      () => Ratelimit.fixedWindow(1, untyped<Duration>(duration)),
      () => Ratelimit.slidingWindow(1, untyped<Duration>(duration)),
      () => Ratelimit.tokenBucket(1, untyped<Duration>(duration), 1),
    ]
    for (const call of calls) expect((await errorWithoutSql(call)).code).toBe('INVALID_DURATION')
  })
  test('a duration whose product is inexact is rounded to whole milliseconds', () => {
    expect(Ratelimit.fixedWindow(1, '1.1h').params.periodMs).toBe(3_960_000)
    expect(Ratelimit.fixedWindow(1, '0.7d').params.periodMs).toBe(60_480_000)
  })

  test('a timeout may be 0, and the other values are refused', async () => {
    expect([parseDuration(0, 'It', 0), parseDuration('0s', 'It', 0)]).toEqual([0, 0])
    for (const duration of [...wrong, ...numbers].filter((each) => each !== 0 && each !== '0s')) {
      const error = await errorWithoutSql(() => ratelimit.blockUntilReady('key', untyped<Duration>(duration)))
      expect(error.code).toBe('INVALID_DURATION')
    }
  })
})

test.each(['throwIfAborted', 'addEventListener'])('a signal that has %s only is refused', async (name) => {
  const signal = untyped<AbortSignal>({ [name]: () => {} })
  const error = await errorWithoutSql(() => ratelimit.blockUntilReady('key', 0, { signal }))
  expect(error.code).toBe('INVALID_OPTION')
})

test.each<readonly [string, object]>([
  ['cleanupProbability above 1', { cleanupProbability: 1.1 }],
  ['cleanupProbability below 0', { cleanupProbability: -0.1 }],
  ['thresholds with a hole', { thresholds: new Array(1) }],
  ['cleanupProbability NaN', { cleanupProbability: Number.NaN }],
  ...[
    ...['durable', 'synchronousCommit', 'inMemoryBlock', 'keepEnded', 'coalesce'],
    ...['dryRun', 'hashKeys', 'autoMigrate', 'preparedStatements'],
  ].map((name) => [`${name} that is neither true nor false`, { durable: true, [name]: 'false' }] as const),
  ['keepEnded with sweeps', { keepEnded: true, cleanupProbability: 0.1 }],
  ['synchronousCommit without durable', { synchronousCommit: true }],
  ['maxBlockedKeys without inMemoryBlock', { maxBlockedKeys: 5 }],
  ['no room for blocked keys', { inMemoryBlock: true, maxBlockedKeys: 0 }],
  ['room for too many blocked keys', { inMemoryBlock: true, maxBlockedKeys: 1e9 }],
  ['room for a fraction of a blocked key', { inMemoryBlock: true, maxBlockedKeys: 1.5 }],
  ['no db', { db: undefined }],
  ['no limiter', { limiter: undefined }],
  ['a clock that is not a function', { clock: new Date() }],
  ['tables that are none', { tables: {} }],
  ['tables that are others', { tables: { ephemeral: orgs, durable: orgs } }],
  ['a table that is another', { tables: { ...rateLimitTables(), durable: orgs } }],
  [
    'tables without a prototype',
    { tables: { ephemeral: Object.create(null), durable: Object.create(null) } },
  ],
])('%s is refused', async (_, options) => {
  const config = untyped<RatelimitConfig>({ db, limiter, prefix: 'p', ...options })
  expect((await errorWithoutSql(() => new Ratelimit(config))).code).toBe('INVALID_OPTION')
})

test.each([
  ['no Date', () => untyped<Date>(5)],
  ['an invalid Date', () => new Date(Number.NaN)],
  ['a Date before those of Postgres', () => new Date(Date.UTC(-5000))],
  ['a Date after those of the limiter', () => new Date(Date.UTC(10_000))],
])('a clock that returns %s is refused', async (_, clock) => {
  const clocked = new Ratelimit({ db, limiter, prefix: 'p', clock })
  expect((await errorWithoutSql(() => clocked.limit('key'))).code).toBe('INVALID_CLOCK')
  expect((await errorWithoutSql(() => clocked.getRemaining('key'))).code).toBe('INVALID_CLOCK')
})
