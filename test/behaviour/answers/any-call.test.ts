import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import {
  checkTables,
  limitAll,
  Ratelimit,
  RatelimitError,
  rateLimitEphemeral,
  rateLimitTables,
  storageSql,
  tableSql,
} from '../../../src/index.ts'
import * as quota from '../../../src/quota/index.ts'
import { closePeriods } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import {
  anyClock,
  anyKey,
  anyLimiter,
  anyNumber,
  anySwitch,
  anyTable,
  anyTables,
  anything,
  functionTo,
  LIMITERS,
  list,
  options,
  usually,
} from './anything.ts'

// Whatever an entry is given, it answers or throws a documented error of the package, within its timeout.

const database = useDatabase()
const TIMEOUT_MS = 20_000
const PREFIX = 'any call'

// biome-ignore lint/suspicious/noExplicitAny: that is the point.
type Untyped = any
/** What an entry is given, and the call. */
type Entry = readonly [string, readonly fc.Arbitrary<unknown>[], (...given: Untyped[]) => unknown]

const all: Untyped = { ...Ratelimit, limitAll, ...quota }

function ours(config: object = {}): Untyped {
  const limiter = Ratelimit.slidingWindow(5, '1s')
  const own = { db: database.db, limiter, prefix: PREFIX, timeout: TIMEOUT_MS, durable: false } as const
  return new quota.Quota({ ...own, ...config })
}

function inTransaction(work: (tx: Untyped) => Promise<unknown>): Promise<unknown> {
  return database.db.transaction(work)
}

const CALL = { tx: usually(undefined), limiter: anyLimiter }
const anyOnce = usually(undefined, { id: 'event', for: '1s' }, { id: 'other', for: 1000 })
const CHECK = { ...CALL, rate: anyNumber, atLeast: usually(undefined, 1), force: anySwitch, once: anyOnce }
// Another would be a long wait.
const noTime = usually(0, '0s').map((time) => (typeof time === 'number' ? Math.min(time, 0) : time))

const credits = (): Untyped => new Credits({ db: database.db, prefix: 'any credits' })

const oneKey: readonly Entry[] = [
  ['limit', [anyKey, options(CHECK)], (key, given) => ours().limit(key, given)],
  ['limit, hashed', [anyKey], (key) => ours({ hashKeys: true }).limit(key)],
  [
    'limit in a transaction',
    [anyKey, fc.record(CHECK, { requiredKeys: [] })],
    (key, given) => inTransaction((tx) => ours().limit(key, { ...given, tx })),
  ],
  ['getRemaining', [anyKey, options(CHECK)], (key, given) => ours().getRemaining(key, given)],
  ['getRemainingAll', [list(anyKey), options(CALL)], (keys, given) => ours().getRemainingAll(keys, given)],
  ['resetUsedTokens', [anyKey, options(CALL)], (key, given) => ours().resetUsedTokens(key, given)],
  [
    'blockUntilReady',
    [anyKey, noTime, options({ ...CHECK, signal: usually(AbortSignal.timeout(1e6)) })],
    (key, time, given) => ours().blockUntilReady(key, time, given),
  ],
  [
    'grant',
    [anyKey, anyNumber, options({ once: anyOnce })],
    (key, amount, given) => credits().grant(key, amount, given),
  ],
]

const anyId = usually('job', 'other')
const NAMED = { ...CHECK, once: usually(undefined), id: anyId, expires: usually('1m', 1000) }

const settling: readonly Entry[] = [
  [
    'reserve and commit',
    [anyKey, options(CHECK), anyNumber, options(CALL)],
    async (key, given, actual, rest) => {
      const reserved = await ours().reserve(key, given)
      return reserved.success ? reserved.commit(actual, rest) : undefined
    },
  ],
  [
    'reserve and release',
    [anyKey, options(CALL)],
    async (key, rest) => (await ours().reserve(key, { limiter: Ratelimit.unlimited() })).release(rest),
  ],
  [
    'settle',
    [anyKey, options(NAMED), anyNumber, options(CALL)],
    async (key, given, actual, rest) => {
      const reserved = await ours().reserve(key, given)
      return reserved.success ? ours().settle({ key, id: given?.id }, actual, rest) : undefined
    },
  ],
  [
    'settle a name',
    [options({ key: anyKey, id: anyId }), anyNumber],
    (name, actual) => ours().settle(name, actual),
  ],
]

const REQUEST = { key: anyKey, rate: anyNumber, limiter: anyLimiter, force: anySwitch }
const anyRequests = list(
  fc.oneof(
    { arbitrary: fc.record(REQUEST, { requiredKeys: ['key'] }), weight: 9 },
    fc.record({ key: anyKey, ratelimit: anything }),
    anything,
  ),
)

/** The requests, each with a limiter unless it has an invalid one. */
function withOurs(requests: Untyped): Untyped {
  const isRequest = (each: Untyped) => typeof each === 'object' && each !== null && 'key' in each
  if (!Array.isArray(requests)) return requests
  return requests.map((each) => (isRequest(each) ? { ratelimit: ours(), ...each } : each))
}

const together: readonly Entry[] = [
  [
    'limitAll',
    [anyRequests, options({ tx: usually(undefined), once: anyOnce })],
    (requests, given) => all.limitAll(withOurs(requests), given),
  ],
  [
    'reserveAll and commit',
    [anyRequests, list(anyNumber), options({ tx: usually(undefined), limiters: list(anyLimiter) })],
    async (requests, actuals, given) => {
      const reserved = await all.reserveAll(withOurs(requests))
      return reserved.success ? reserved.commit(actuals, given) : undefined
    },
  ],
  [
    'reserveAll and release',
    [anyRequests, options({ tx: usually(undefined) })],
    async (requests, given) => (await all.reserveAll(withOurs(requests), given)).release?.(given),
  ],
  [
    'spend and release',
    [anyRequests, anyNumber, options({ tx: usually(undefined) })],
    async (requests, rate, given) => (await all.spend(withOurs(requests), { rate })).release(given),
  ],
  [
    'spend and commit',
    [anyRequests, anyNumber, anyNumber, options({ tx: usually(undefined), debt: usually('first') })],
    async (requests, rate, actual, given) =>
      (await all.spend(withOurs(requests), { rate })).commit?.(actual, given),
  ],
  [
    'spend by any options',
    [anyRequests, options({ rate: anyNumber, atLeast: anyNumber, tx: usually(undefined), once: anyOnce })],
    (requests, given) => all.spend(withOurs(requests), given),
  ],
]

const LIMITS_OF_ROWS = { limiter: anyLimiter, limiterOf: functionTo(...LIMITERS) }
const ROWS: Record<string, fc.Arbitrary<unknown>> = {
  prefix: usually(PREFIX),
  durable: anySwitch,
  tables: anyTables,
  clock: anyClock,
}
/** Rows, and the one or the other way to say by which limit they are read. */
function someRows(more: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<unknown> {
  const { limiter, limiterOf } = LIMITS_OF_ROWS
  const ways = [{ limiter }, { limiter }, { limiterOf }, { limiterOf }, LIMITS_OF_ROWS, {}]
  return fc.oneof(
    ...ways.map((way) =>
      fc
        .tuple(fc.record(way), fc.record({ ...ROWS, ...more }, { requiredKeys: ['prefix'] }))
        .map(([by, rows]) => ({ ...by, ...rows })),
    ),
    anything,
  )
}

const numbersOf = [usedOf, remainingOf, resetOf] as Untyped[]
const functions: readonly Entry[] = [
  [
    'usage',
    [someRows({ db: usually(database.db) }), options({ top: anyNumber, tx: usually(undefined) })],
    (given, more) => usage(given, more),
  ],
  [
    'usage of an object',
    [options({ top: anyNumber, limiterOf: functionTo(...LIMITERS) })],
    (given) => usage(ours(), given),
  ],
  [
    'usage of any database',
    [anything],
    (db) => usage({ db, prefix: PREFIX, limiter: Ratelimit.gcra(5, '1s'), durable: true }),
  ],
  [
    'closePeriods',
    [someRows({ db: usually(database.db) }), options({ limit: anyNumber })],
    (given, more) => inTransaction((tx) => closePeriods(given, { ...more, tx })),
  ],
  [
    'closePeriods of an object',
    [options({ limit: anyNumber, limiterOf: functionTo(...LIMITERS) })],
    (given) => inTransaction((tx) => closePeriods(ours(), { ...given, tx })),
  ],
  ['closePeriods in any transaction', [anything], (tx) => closePeriods(ours(), { tx })],
  [
    'the numbers of rows',
    [fc.constantFrom(...numbersOf), anyTable, anyLimiter, options({ clock: anyClock })],
    (numberOf, table, limiter, given) => numberOf(table, limiter, given),
  ],
  [
    'the numbers of rows, asked for',
    [fc.constantFrom(...numbersOf), anyLimiter, options({ clock: anyClock })],
    (numberOf, limiter, given) =>
      database.db
        .select({ number: numberOf(rateLimitEphemeral, limiter, given) })
        .from(rateLimitEphemeral)
        .limit(3),
  ],
  [
    'rateLimitTables',
    [options({ schema: anything, ephemeral: anyKey, durable: anyKey })],
    (given) => tableSql(rateLimitTables(given)),
  ],
  ['tableSql', [anyTables], (tables) => tableSql(tables)],
  ['storageSql', [anyTables, options({ logged: anything })], (...given) => storageSql(...given)],
  [
    'checkTables',
    [anyTables, options({ logged: anything })],
    (...given) => checkTables(database.db, ...given),
  ],
  ['checkTables of any database', [anything], (db) => checkTables(db)],
]

const DURATION = usually('1s', '1m', 1000)
const limiters: readonly Entry[] = [
  ...['fixedWindow', 'slidingWindow'].map(
    (name): Entry => [
      name,
      [anyNumber, DURATION],
      (tokens, window) => ours({ limiter: all[name](tokens, window), prefix: name }).limit('key'),
    ],
  ),
  [
    'tokenBucket',
    [
      anyNumber,
      DURATION,
      anyNumber,
      options({ refill: usually('interval', 'continuous'), initialTokens: anyNumber }),
    ],
    (...given) => ours({ limiter: all.tokenBucket(...given), prefix: 'bucket' }).limit('key'),
  ],
  [
    'gcra',
    [anyNumber, DURATION, options({ burst: anyNumber })],
    (...given) => ours({ limiter: all.gcra(...given), prefix: 'gcra' }).limit('key'),
  ],
  [
    'calendarWindow',
    [
      anyNumber,
      usually('hour', 'month'),
      options({
        timeZone: usually('UTC', 'Asia/Kathmandu'),
        anchor: usually(new Date()),
        rollover: options({ max: anyNumber }),
      }),
    ],
    (tokens, period, given) =>
      ours({ limiter: (calendarWindow as Untyped)(tokens, period, given), prefix: 'calendar' }).limit('key'),
  ],
]

const CONFIG = {
  ...{ limiter: anyLimiter, prefix: anyKey, clock: anyClock, tables: anyTables, thresholds: list(anyNumber) },
  durable: anySwitch,
  synchronousCommit: anySwitch,
  cleanupProbability: usually(0, 0.5, 1),
  keepEnded: anySwitch,
  grace: usually('1h', 1000),
  inMemoryBlock: anySwitch,
  maxBlockedKeys: usually(1, 10),
  autoMigrate: anySwitch,
  waitUntil: functionTo(undefined),
  preparedStatements: anySwitch,
  dryRun: anySwitch,
  // A short one would be over before the answer.
  timeout: usually(TIMEOUT_MS, '20s').filter(
    (time) => typeof time !== 'number' || time >= TIMEOUT_MS || time <= 0,
  ),
  hashKeys: anySwitch,
  coalesce: anySwitch,
  connections: usually(1, 2),
  onError: usually('throw', 'allow', 'deny'),
  onDegraded: functionTo(undefined),
}
const names = Object.keys(CONFIG) as (keyof typeof CONFIG)[]

const configs: readonly Entry[] = [
  ['a limiter of anything', [anything], (config) => new Ratelimit(config)],
  ['a quota of anything', [anything], (config) => new quota.Quota(config)],
  ['a limiter of any database', [anything], (db) => ours({ db }).limit('key')],
  [
    'a limiter with some options',
    [
      fc
        .subarray(names, { maxLength: 3 })
        .chain((some) => fc.record(Object.fromEntries(some.map((name) => [name, CONFIG[name]])))),
      fc.constantFrom('limit', 'reserve', 'getRemaining', 'cleanup'),
    ],
    (config, name) => ours(config)[name]('key'),
  ],
]

describe('an answer, or a documented error, in time', () => {
  test.each([...oneKey, ...settling, ...together, ...functions, ...limiters, ...configs])(
    '%s',
    async (_, given, call) => {
      const property = fc.asyncProperty(fc.tuple(...given), async (values) => {
        const startMs = performance.now()
        try {
          await call(...values)
        } catch (error) {
          if (!(error instanceof RatelimitError)) throw error
          // A row may be of another plan that came before, and an estimate of nothing leaves it so.
          expect(error.code).toMatch(/^INVALID_|^ALREADY_SETTLED$|^NOT_RESERVED$|^OTHER_PLAN$/)
        }
        expect(performance.now() - startMs).toBeLessThan(TIMEOUT_MS + 1000)
      })
      // The timeout is for one that never ends.
      await fc.assert(property, { ...runs(40), timeout: 2 * TIMEOUT_MS })
    },
  )
})
