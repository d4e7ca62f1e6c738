import { countDenials } from 'drizzle-ratelimit/denials'
import { block, lockout, unblock } from 'drizzle-ratelimit/lockout'
import { denied, remainingOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { dashboard } from '../../../src/dashboard/index.ts'
import * as express from '../../../src/http/express.ts'
import * as hono from '../../../src/http/hono.ts'
import * as trpc from '../../../src/http/trpc.ts'
import {
  checkTables,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  RatelimitError,
  rateLimitDurable,
  rateLimitTables,
  storageSql,
  tableSql,
} from '../../../src/index.ts'
import * as CALLS from '../../../src/kernel/options/call-table.ts'
import { configNames } from '../../../src/kernel/options/settings.ts'
import { fromKysely, rateLimitMigration, usedOf as usedInKysely } from '../../../src/kysely.ts'
import * as quota from '../../../src/quota/index.ts'
import { closePeriods, prorate, settleExpired } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { CONFIG as SEMAPHORE } from '../../../src/semaphore/options.ts'
import { useDatabase } from '../../support/databases.ts'
import { allExamples } from '../../support/limits.ts'

// Callers without types. Whatever they give, an entry answers or throws an error of the package, at once.

const database = useDatabase()

/** What TypeScript would refuse in most places. */
const VALUES: Readonly<Record<string, unknown>> = {
  undefined: undefined,
  null: null,
  'a number': 5,
  NaN: Number.NaN,
  'a bigint': 10n,
  'a string': 'x',
  true: true,
  'a symbol': Symbol('s'),
  'an object': {},
  'an object without a prototype': Object.create(null),
  'a list': [],
  'a list of null': [null],
  'a date': new Date(0),
  'a function': () => undefined,
}

// biome-ignore lint/suspicious/noExplicitAny: that is the point.
type Untyped = any
type Entry = readonly [string, (value: Untyped) => unknown]

/** One entry for each of the options. */
function eachOf(name: string, options: readonly string[], call: (given: Untyped) => unknown): Entry[] {
  return options.map((option) => [`${name} ${option}`, (value) => call({ [option]: value })])
}

const limiter = Ratelimit.fixedWindow(5, '1m')
const CALL = Object.keys(CALLS.limit)
const CONFIG = Object.keys(configNames())
/** Those that are made of a number and a duration. */
const ALGORITHMS = new Set(
  allExamples.filter(({ lengths }) => lengths === 'any').map(({ algorithm }) => algorithm),
)

describe('a value that the types forbid is refused', () => {
  const config = (options: object = {}) =>
    ({ db: database.db, limiter, prefix: 'untyped', ...options }) as RatelimitConfig
  const ours = (options: object = {}): Untyped =>
    new quota.Quota(config({ durable: false, ...options }) as never)
  const rows = { prefix: 'untyped', limiter, durable: false }
  let keys = 0
  const name = { key: 'key', id: 'job' }
  const credits = (options: object = {}): Untyped =>
    new Credits({ db: database.db, dated: true, prefix: 'untyped credits', ...options } as CreditsConfig)
  const granted = () => credits({ dated: false, prefix: 'untyped balance' })
  const locking = () => ours({ limiter: lockout(5, '1m', { block: '1m' }), prefix: 'untyped lockout' })
  const slots = (own: object = {}): Untyped =>
    new Semaphore({ db: database.db, limit: 1000, lease: '1m', prefix: 'untyped slots', ...own })
  const reserved = () => ours().reserve('reserved', { limiter: Ratelimit.unlimited() })
  // Each has a key of its own, so that none is denied.
  const request = () => ({ ratelimit: ours(), key: `key ${keys++}` })
  const reservedAll = () => all.reserveAll([request()])
  const all: Untyped = { ...Ratelimit, lockout, limitAll, ...quota }
  const month: Untyped = calendarWindow
  const inTransaction = (work: (tx: Untyped) => Promise<unknown>) => database.db.transaction(work)

  const methods = ['limit', 'reserve', 'getRemaining', 'resetUsedTokens'].flatMap((name): Entry[] => [
    [`${name} key`, (value) => ours()[name](value)],
    [`${name} key, hashed`, (value) => ours({ hashKeys: true })[name](value)],
    [`${name} options`, (value) => ours()[name]('key', value)],
    ...eachOf(name, CALL, (options) => ours()[name]('key', options)),
  ])
  const together = ['limitAll', 'reserveAll', 'spend'].flatMap((name): Entry[] => [
    [`${name} requests`, (value) => all[name](value, { rate: 1 })],
    [`${name} a request`, (value) => all[name]([value], { rate: 1 })],
    [`${name} options`, (value) => all[name]([request()], value)],
    ...eachOf(name, ['ratelimit', 'key', 'rate', 'limiter', 'force'], (options) =>
      all[name]([{ ...request(), ...options }], { rate: 1 }),
    ),
    ...eachOf(name, ['rate', 'tx', 'id', 'expires'], (options) =>
      all[name]([request()], {
        rate: 1,
        ...(name === 'limitAll' ? {} : { id: 'a', expires: '1m' }),
        ...options,
      }),
    ),
  ])
  const byName: Entry[] = [
    ['settle requests', (value) => all.settle(value, 'id', { actual: [1] })],
    ['settle a request', (value) => all.settle([value], 'id', { actual: 1 })],
    ['settle id', (value) => all.settle([request()], value, { actual: 1 })],
    ['settle costs', (value) => all.settle([request()], 'id', { actual: value })],
    ['settle a cost', (value) => all.settle([request()], 'id', { actual: [value] })],
    ['settle options', (value) => all.settle([request()], 'id', value)],
    ...eachOf('settle', ['tx', 'debt'], (options) =>
      all.settle([request()], 'id', { actual: 1, ...options }),
    ),
  ]
  const limiters = [...ALGORITHMS].flatMap((name): Entry[] => [
    [`${name} tokens`, (value) => all[name](value, '1m', 5)],
    [`${name} window`, (value) => all[name](5, value, 5)],
    [`${name} third`, (value) => all[name](5, '1m', value)],
    [`${name} fourth`, (value) => all[name](5, '1m', 5, value)],
  ])

  test.each<Entry>([
    ['a limiter of', (value) => new Ratelimit(value)],
    ...eachOf('a limiter with', CONFIG, (options) => ours(options).limit('key')),
    ...methods,
    ['blockUntilReady timeout', (value) => ours().blockUntilReady('key', value)],
    ['blockUntilReady options', (value) => ours().blockUntilReady('key', 0, value)],
    ...eachOf('blockUntilReady', [...CALL, 'signal'], (options) => ours().blockUntilReady('key', 0, options)),
    ['getRemainingAll keys', (value) => ours().getRemainingAll(value)],
    ['getRemainingAll options', (value) => ours().getRemainingAll(['key'], value)],
    ['a semaphore of', (value) => new Semaphore(value)],
    ...eachOf('a semaphore with', Object.keys(SEMAPHORE), (options) => slots(options).acquire('key')),
    ['holders key', (value) => slots().holders(value)],
    ['holders options', (value) => slots().holders('key', value)],
    ['acquire key', (value) => slots().acquire(value)],
    ['acquire options', (value) => slots().acquire('key', value)],
    ...eachOf('acquire', ['tx', 'limit', 'lease', 'timeout', 'signal'], (options) =>
      slots().acquire('key', options),
    ),
    ['extend options', async (value) => (await slots().acquire('key')).extend(value)],
    ['release of a lease, options', async (value) => (await slots().acquire('key')).release(value)],
    ['schedule options', (value) => schedule(locking(), 'key', value)],
    ...eachOf('schedule', ['within', 'rate', 'tx', 'limiter'], (options) =>
      schedule(ours({ limiter: Ratelimit.gcra(1e6, '1s'), prefix: 'untyped schedule' }), 'key', {
        within: 0,
        ...options,
      }),
    ),
    ['block duration', (value) => block(locking(), 'key', value)],
    ['block options', (value) => block(locking(), 'key', '1m', value)],
    ['unblock options', (value) => unblock(locking(), 'key', value)],
    ...eachOf('lockout', ['block', 'factor', 'max', 'forgive'], (options) =>
      lockout(5, '1m', { block: '1m', ...options }),
    ),
    ['grant key', (value) => granted().grant(value, 1)],
    ['grant amount', (value) => granted().grant('key', value)],
    ['grant options', (value) => granted().grant('key', 1, value)],
    ['credits config', (value) => new Credits(value as CreditsConfig)],
    ...eachOf('credits', ['dated', 'keep', 'prefix', 'db', 'durable'], (options) =>
      credits(options).limit('key'),
    ),
    ['credits settle name', (value) => credits().settle(value, 1)],
    ['credits blockUntilReady time', (value) => credits().blockUntilReady('key', value)],
    ['credits limit key', (value) => credits().limit(value)],
    ['credits limit options', (value) => credits().limit('key', value)],
    ...eachOf('credits limit', CALL, (options) => credits().limit('key', options)),
    ...eachOf('credits reserve', CALL, (options) => credits().reserve('key', options)),
    ['credits grant key', (value) => credits().grant(value, 1, { id: 'a' })],
    ['credits grant amount', (value) => credits().grant('key', value, { id: 'a' })],
    ['credits grant options', (value) => credits().grant('key', 1, value)],
    ...eachOf('credits grant', ['id', 'expires', 'priority', 'tx'], (options) =>
      credits().grant('key', 1, { id: 'a', ...options }),
    ),
    ['grants key', (value) => credits().grants(value)],
    ['grants options', (value) => credits().grants('key', value)],
    ['voidGrant id', (value) => credits().voidGrant('key', value)],
    ['voidGrant options', (value) => credits().voidGrant('key', 'a', value)],
    ['settle name', (value) => ours().settle(value, 1)],
    ...eachOf('settle name', ['key', 'id'], (given) => ours().settle({ ...name, ...given }, 1)),
    ['settle actual', (value) => ours().settle(name, value)],
    ['settle options', (value) => ours().settle(name, 1, value)],
    ...eachOf('settle', ['tx', 'limiter'], (options) => ours().settle(name, 1, options)),
    ['commit actual', async (value) => (await reserved()).commit(value)],
    ['commit options', async (value) => (await reserved()).commit(1, value)],
    ['release options', async (value) => (await reserved()).release(value)],
    ...together,
    ...byName,
    ['commit of all', async (value) => (await reservedAll()).commit(value)],
    ['commit of all, options', async (value) => (await reservedAll()).commit([1], value)],
    ...eachOf('commit of all', ['tx', 'limiters'], async (options) =>
      (await reservedAll()).commit([1], options),
    ),
    ...eachOf('commit of spent', ['tx', 'limiters', 'debt'], async (options) =>
      (await all.spend([request()], { rate: 1 })).commit(1, options),
    ),
    ['commit of spent', async (value) => (await all.spend([request()], { rate: 1 })).commit(value)],
    [
      'release of spent, options',
      async (value) => (await all.spend([request()], { rate: 1 })).release(value),
    ],
    ...limiters,
    ...eachOf('tokenBucket', ['refill', 'initialTokens'], (options) => all.tokenBucket(5, '1m', 5, options)),
    ...eachOf('gcra', ['burst'], (options) => all.gcra(5, '1m', options)),
    ...(['from', 'to', 'at'] as const).map((name, place): [string, (value: unknown) => unknown] => [
      `prorate ${name}`,
      (value) => {
        const given: unknown[] = [month(5, 'month'), month(9, 'month'), new Date()]
        return (prorate as Untyped)(...given.with(place, value))
      },
    ]),
    ['calendarWindow tokens', (value) => month(value, 'month')],
    ['calendarWindow period', (value) => month(5, value)],
    ['calendarWindow options', (value) => month(5, 'month', value)],
    ...eachOf('calendarWindow', ['timeZone', 'anchor', 'every', 'rollover'], (options) =>
      month(5, 'month', options),
    ),
    ['usage db', (value) => usage({ db: value, prefix: 'untyped', limiter, durable: true })],
    ['usage rows', (value) => usage(value)],
    ['usage options', (value) => usage(ours(), value)],
    ...eachOf('usage', ['top', 'tx', 'limiterOf'], (options) => usage(ours(), options)),
    ...eachOf('usage', ['prefix', 'limiter', 'durable', 'tables', 'use', 'clock'], (rows) =>
      usage({ db: database.db, prefix: 'untyped', limiter, durable: true, ...rows }),
    ),
    ...eachOf('usage', ['limiterOf'], (rows) =>
      usage({ db: database.db, prefix: 'untyped', durable: true, ...rows }),
    ),
    ...eachOf('dashboard', ['limiters', 'authorize', 'secret'], (options) =>
      dashboard({
        limiters: { ours: ours() },
        authorize: () => false,
        secret: 'sixteen or longer',
        ...options,
      }),
    ),
    ['dashboard options', (value) => dashboard(value)],
    ['denied db', (value) => denied({ db: value, prefix: 'untyped', durable: true })],
    ['denied rows', (value) => denied(value)],
    ['denied options', (value) => denied(ours(), value)],
    ...eachOf('denied', ['since', 'top', 'tx'], (options) => denied(ours(), options)),
    ...eachOf('denied', ['prefix', 'durable', 'tables', 'clock'], (rows) =>
      denied({ db: database.db, prefix: 'untyped', durable: true, ...rows }),
    ),
    ['countDenials options', (value) => countDenials(value)],
    ...eachOf('countDenials', ['every', 'top'], (options) => countDenials(options)),
    ['settleExpired of', (value) => inTransaction((tx) => settleExpired(value, { tx, as: 'release' }))],
    ['settleExpired options', (value) => settleExpired(ours(), value)],
    ...eachOf('settleExpired', ['tx', 'as', 'limit', 'limiterOf'], (options) =>
      inTransaction((tx) => settleExpired(ours(), { tx, as: 'release', ...options })),
    ),
    ['closePeriods of', (value) => inTransaction((tx) => closePeriods(value, { tx }))],
    ['closePeriods options', (value) => closePeriods(ours(), value)],
    ...eachOf('closePeriods', ['tx', 'limit', 'after', 'grace', 'limiterOf'], (options) =>
      inTransaction((tx) => closePeriods(ours(), { tx, ...options })),
    ),
    ...eachOf('closePeriods', ['db', 'prefix', 'limiter', 'durable', 'tables', 'clock'], (given) =>
      inTransaction((tx) => closePeriods({ db: database.db, ...rows, ...given }, { tx })),
    ),
    ...eachOf('closePeriods', ['limiterOf'], (given) =>
      inTransaction((tx) => closePeriods({ db: database.db, ...rows, limiter: undefined, ...given }, { tx })),
    ),
    ['usedOf table', (value) => usedOf(value, limiter)],
    ['usedOf limiter', (value) => usedOf(rateLimitDurable, value)],
    ['remainingOf options', (value) => remainingOf(rateLimitDurable, limiter, value)],
    ...eachOf('remainingOf', ['clock'], (options) => remainingOf(rateLimitDurable, limiter, options)),
    ['rateLimitTables options', (value) => rateLimitTables(value)],
    ...eachOf('rateLimitTables', ['ephemeral', 'durable', 'schema'], (options) => rateLimitTables(options)),
    ['tableSql tables', (value) => tableSql(value)],
    ['storageSql tables', (value) => storageSql(value)],
    ['checkTables db', (value) => checkTables(value)],
    ['checkTables tables', (value) => checkTables(database.db, value)],
    ['fromKysely', (value) => fromKysely(value)],
    ['rateLimitMigration tables', (value) => rateLimitMigration(value)],
    ['usedOf of Kysely, table', (value) => usedInKysely(value, limiter)],
    ['rateLimit of Express, options', (value) => express.rateLimit(value)],
    ['rateLimit of Hono, options', (value) => hono.rateLimit(value)],
    ['rateLimit of tRPC, options', (value) => trpc.rateLimit(value)],
    ...eachOf('rateLimit', ['ratelimit', 'key', 'limits', 'count', 'rate'], (options) =>
      express.rateLimit({ ratelimit: ours(), key: () => 'key', ...options }),
    ),
    ['rateLimit limits', (value) => hono.rateLimit({ limits: value } as Untyped)],
  ])('%s', async (what, call) => {
    const expectRefusal = async ([name, value]: readonly [string, unknown]) => {
      const error = await Promise.resolve(value)
        .then(call)
        .then(
          () => undefined,
          (thrown: unknown) => thrown,
        )
      if (error === undefined) {
        // What is no object says nothing as options, and must not be ignored.
        const isNone = value !== undefined && (typeof value !== 'object' || value === null)
        expect(what.endsWith('options') && isNone, name).toBe(false)
        return
      }
      expect(error, name).toBeInstanceOf(RatelimitError)
      expect((error as RatelimitError).code, name).toMatch(/^INVALID_|^ALREADY_SETTLED$|^NOT_RESERVED$/)
    }
    // Calls at once share statements, which take longest here.
    await Promise.all(Object.entries(VALUES).map(expectRefusal))
  })
})
