import { countDenials } from 'drizzle-ratelimit/denials'
import { block, lockout, unblock } from 'drizzle-ratelimit/lockout'
import { denied as deniedKeys, remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { dashboard } from '../../../src/dashboard/index.ts'
import { rateLimitStorage } from '../../../src/http/better-auth.ts'
import * as express from '../../../src/http/express.ts'
import * as fastify from '../../../src/http/fastify.ts'
import * as hono from '../../../src/http/hono.ts'
import { clientKey, headersOf, tooManyRequests } from '../../../src/http/index.ts'
import * as next from '../../../src/http/next.ts'
import * as trpc from '../../../src/http/trpc.ts'
import {
  checkTables,
  limitAll,
  Ratelimit,
  rateLimitDurable,
  rateLimitTables,
  storageSql,
} from '../../../src/index.ts'
import { Members } from '../../../src/members/index.ts'
import { instrument } from '../../../src/otel.ts'
import * as quota from '../../../src/quota/index.ts'
import { closePeriods, openReservations, settleExpired } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { useDatabase } from '../../support/databases.ts'

// An option that does not exist would be ignored: `{ trx }` would charge outside of the transaction.

const database = useDatabase()

// biome-ignore lint/suspicious/noExplicitAny: that is the point.
type Untyped = any

const limiter = Ratelimit.fixedWindow(5, '1m')
const logins = lockout(5, '1m', { block: '1m' })
const all: Untyped = { ...Ratelimit, limitAll, ...quota }

function ours(options: object = {}): Untyped {
  return new quota.Quota({
    ...{ db: database.db, limiter, prefix: 'unknown', cleanupProbability: 0, durable: false },
    ...options,
  })
}

const key = () => 'key'
const route = () => ({ ratelimit: ours(), key })
const request = (options: object = {}) => ({ ratelimit: ours(), key: 'key', ...options })
const slots = (options: object = {}): Untyped =>
  new Semaphore({ db: database.db, limit: 1000, lease: '1m', prefix: 'unknown slots', ...options })
const members = (options: object = {}): Untyped =>
  new Members({ db: database.db, limit: 5, prefix: 'unknown members', ...options })
const credits = (options: object = {}): Untyped =>
  new Credits({ db: database.db, dated: true, prefix: 'unknown credits', ...options } as CreditsConfig)
const balance = () => credits({ dated: false })
const reserved = () => ours().reserve('other', { limiter: Ratelimit.unlimited() })
const reservedAll = () => all.reserveAll([{ ...request(), limiter: Ratelimit.unlimited() }])
const spent = () => all.spend([{ ...request(), limiter: Ratelimit.unlimited() }], { rate: 1 })
const denied = () => ours({ prefix: 'denying' }).limit('key', { limiter: Ratelimit.fixedWindow(0, '1m') })
const plan = { prefix: 'unknown', limiter }
const inTransaction = (work: (tx: Untyped) => Promise<unknown>) => database.db.transaction(work)
const store = () => ({ db: database.db, prefix: 'unknown' })

const viewed = { authorize: () => false as const, secret: 'sixteen or longer' }
const planned = (more: object) => ({ ratelimit: ours(), limiterOf: () => limiter, ...more })

/** An entry, and how it is called with more options than it knows. */
type Entry = readonly [string, (more: object) => unknown]

/** Each entry that takes options. */
const ENTRIES: readonly Entry[] = [
  ['the constructor', (more) => ours(more)],
  ['limit', (more) => ours().limit('key', more)],
  ['limit with options', (more) => ours().limit('key', { rate: 2, limiter, ...more })],
  ['limit with hashed keys', (more) => ours({ hashKeys: true }).limit('key', more)],
  ['reserve', (more) => ours().reserve('key', more)],
  ['reserve with a name', (more) => ours().reserve('key', { id: 'job', expires: '1h', ...more })],
  ['settle by a name', (more) => ours().settle({ key: 'key', id: 'job' }, 1, more)],
  ['a name', (more) => ours().settle({ key: 'key', id: 'job', ...more }, 1)],
  ['getRemaining', (more) => ours().getRemaining('key', more)],
  ['getRemainingAll', (more) => ours().getRemainingAll(['key'], more)],
  ['blockUntilReady', (more) => ours().blockUntilReady('key', 0, more)],
  ['changePlan', (more) => ours().changePlan('key', { to: calendarWindow(5, 'month'), ...more })],
  ['resetUsedTokens', (more) => ours().resetUsedTokens('key', more)],
  ['the constructor of a Semaphore', (more) => slots(more)],
  ['acquire', (more) => slots().acquire('key', more)],
  ['holders', (more) => slots().holders('key', more)],
  ['the constructor of Members', (more) => members(more)],
  ['add', (more) => members().add('key', 'member', more)],
  ['remove', (more) => members().remove('key', 'member', more)],
  ['has', (more) => members().has('key', 'member', more)],
  ['list', (more) => members().list('key', more)],
  ['extend', async (more) => (await slots().acquire('key')).extend(more)],
  ['release of a lease', async (more) => (await slots().acquire('key')).release(more)],
  ['the constructor of Credits', (more) => credits({ dated: false, ...more })],
  ['the constructor of dated Credits', (more) => credits(more)],
  ['grant', (more) => balance().grant('key', 1, more)],
  ['settle of credits by a name', (more) => credits().settle({ key: 'key', id: 'job' }, 1, more)],
  ['blockUntilReady of credits', (more) => credits().blockUntilReady('key', 0, more)],
  ['getRemainingAll of credits', (more) => credits().getRemainingAll(['key'], more)],
  ['limit of credits', (more) => credits().limit('key', more)],
  ['reserve of credits', (more) => credits().reserve('key', more)],
  ['reserve of credits with a name', (more) => credits().reserve('key', { id: 'a', expires: '1h', ...more })],
  ['grant of credits', (more) => credits().grant('key', 1, { id: 'a', ...more })],
  ['grants', (more) => credits().grants('key', more)],
  ['voidGrant', (more) => credits().voidGrant('key', 'a', more)],
  ['getRemaining of credits', (more) => credits().getRemaining('key', more)],
  ['commit', async (more) => (await reserved()).commit(1, more)],
  ['release', async (more) => (await reserved()).release(more)],
  ['limitAll', (more) => all.limitAll([request()], more)],
  ['a request of limitAll', (more) => all.limitAll([request(more)])],
  ['reserveAll', (more) => all.reserveAll([request()], more)],
  ['a request of reserveAll', (more) => all.reserveAll([request(more)])],
  ['commit of all', async (more) => (await reservedAll()).commit([1], more)],
  ['release of all', async (more) => (await reservedAll()).release(more)],
  ['spend', (more) => all.spend([request()], { rate: 1, ...more })],
  ['a request of spend', (more) => all.spend([request(more)], { rate: 1 })],
  ['settle of several', (more) => all.settle([request()], 'id', { actual: 1, ...more })],
  ['commit of spend', async (more) => (await spent()).commit?.(1, more)],
  ['release of spend', async (more) => (await spent()).release(more)],
  ['tokenBucket', (more) => all.tokenBucket(5, '1m', 5, more)],
  [
    'schedule',
    (more) =>
      schedule(ours({ limiter: Ratelimit.gcra(5, '1s'), prefix: 'scheduled' }), 'key', {
        within: 0,
        ...more,
      }),
  ],
  ['lockout', (more) => lockout(5, '1m', { block: '1m', ...more })],
  ['block', (more) => block(ours({ limiter: logins, prefix: 'blocked' }), 'key', '1m', more)],
  ['unblock', (more) => unblock(ours({ limiter: logins, prefix: 'blocked' }), 'key', more)],
  ['gcra', (more) => all.gcra(5, '1m', more)],
  ['calendarWindow', (more) => calendarWindow(5, 'month', more)],
  ['the rows of usage', (more) => usage({ db: database.db, durable: true, ...plan, ...more })],
  ['usage', (more) => usage(ours(), more)],
  [
    'the rows of denied',
    (more) => deniedKeys({ db: database.db, prefix: 'unknown', durable: true, ...more }),
  ],
  ['denied', (more) => deniedKeys(ours(), more)],
  ['countDenials', (more) => countDenials(more)],
  ['dashboard', (more) => dashboard({ limiters: { ours: ours() }, ...viewed, ...more })],
  ['a limit of the dashboard', (more) => dashboard({ limiters: { ours: planned(more) }, ...viewed })],
  ['settleExpired', (more) => inTransaction((tx) => settleExpired(ours(), { tx, as: 'release', ...more }))],
  ['openReservations', (more) => openReservations(ours(), more)],
  ['closePeriods', (more) => inTransaction((tx) => closePeriods(ours(), { tx, ...more }))],
  ['usedOf', (more) => usedOf(rateLimitDurable, limiter, more)],
  ['remainingOf', (more) => remainingOf(rateLimitDurable, limiter, more)],
  ['resetOf', (more) => resetOf(rateLimitDurable, limiter, more)],
  ['storageSql', (more) => storageSql(undefined, more)],
  ['checkTables', (more) => checkTables(database.db, undefined, more)],
  ['rateLimitTables', (more) => rateLimitTables(more)],
  ['instrument', (more) => instrument(more)],
  ['clientKey', (more) => clientKey({ headers: {}, socket: { remoteAddress: '192.0.2.1' } }, more)],
  ['headersOf', async (more) => headersOf(await denied(), ours(), more)],
  ['tooManyRequests', async (more) => tooManyRequests(await denied(), ours(), more)],
  ['rateLimit of Express', (more) => express.rateLimit({ ...route(), ...more })],
  ['the store of Express', (more) => new express.RateLimitStore({ ...store(), ...more })],
  ['the store of Fastify', (more) => fastify.rateLimitStore({ ...store(), ...more })],
  ['the storage of Better Auth', (more) => rateLimitStorage({ ...store(), ...more })],
  ['rateLimit of Hono', (more) => hono.rateLimit({ ...route(), ...more })],
  ['one of several limits', (more) => hono.rateLimit({ limits: [{ ...route(), ...more }] })],
  ['several limits', (more) => hono.rateLimit({ limits: [route()], ...more })],
  ['rateLimit of tRPC', (more) => trpc.rateLimit({ ...route(), ...more })],
  ['rateLimit of Next', (more) => next.rateLimit({ ...route(), ...more })],
  ['limitedRoute', (more) => next.limitedRoute({ ...route(), ...more }, () => new Response())],
  [
    'limitedAction',
    (more) => next.limitedAction({ ...route(), onDenied: () => null, ...more }, async () => null),
  ],
]

async function refusalOf([, call]: Entry, more: object): Promise<unknown> {
  return Promise.resolve(more)
    .then(call)
    .then(
      () => 'accepted',
      (error: unknown) => error,
    )
}

describe('an option that does not exist is refused, and nothing is charged', () => {
  test.each<Entry>(ENTRIES)('%s', async (...entry) => {
    for (const name of ['analytics', 'toString', '__proto_']) {
      const error = await refusalOf(entry, { [name]: undefined })
      const message = expect.stringContaining(`There is no option ${name}. `)
      expect(error).toMatchObject({ name: 'RatelimitError', code: 'INVALID_OPTION', message })
    }
    expect(await ours().getRemaining('key')).toMatchObject({ used: 0 })
  })
})

/** By the name of their entry. */
const entries = new Map(ENTRIES.map((entry) => [entry[0], entry]))

test.each([
  ['limit', { trx: null }, 'There is no option trx. Did you mean tx?'],
  ['limit', { Rate: 2 }, 'There is no option Rate. Did you mean rate?'],
  ['limit', { weight: 2 }, /The options are: tx, limiter, once, rate, atLeast, force, start\.$/],
  ['the constructor', { timeoutMs: 5 }, 'There is no option timeoutMs. Did you mean timeout?'],
  ['the constructor', { inMemoryBlok: true }, 'There is no option inMemoryBlok. Did you mean inMemoryBlock?'],
  ['acquire', { limiter }, 'There is no option limiter. Did you mean limit?'],
  ['the constructor of a Semaphore', { onError: 'allow' }, /^There is no option onError\. /],
  ['rateLimit of Hono', { rat: 5 }, 'There is no option rat. Did you mean rate?'],
  // What is near is not wrong in every call.
  [
    'reserve',
    { force: true },
    'There is no option force. The options are: tx, limiter, once, rate, atLeast, id, expires.',
  ],
  [
    'blockUntilReady',
    { force: true },
    'There is no option force. The options are: once, rate, atLeast, limiter, signal.',
  ],
  [
    'blockUntilReady',
    { tx: null },
    'There is no option tx. The options are: once, rate, atLeast, limiter, signal.',
  ],
  ['a request of limitAll', { tx: null }, /^There is no option tx\. The options are: ratelimit, key/],
  ['a request of spend', { rate: 1 }, 'There is no option rate. The options are: ratelimit, key, limiter.'],
  ['rateLimit of tRPC', { headers: 'legacy' }, /^There is no option headers\./],
  ['rateLimit of Next', { count: 'failures' }, /^There is no option count\./],
  ['the store of Express', { limiter }, /^There is no option limiter\./],
  ['several limits', { rate: 5 }, /^With limits, give ratelimit, key, limiter and rate to each/],
])('the error of %s names the options that exist: %o', async (name, more, message) => {
  const error = await refusalOf(entries.get(name) as Entry, more)
  expect(error).toMatchObject({ code: 'INVALID_OPTION' })
  expect((error as Error).message).toMatch(message)
})

test.each<[...Entry, RegExp]>([
  ['limit', (given) => ours().limit('key', given), /^Options .* are: tx, .*rate, /],
  ['once', (once) => ours().limit('key', { once }), /^once .* are: id, for\.$/],
  ['a name', (given) => ours().settle(given, 5), /^The name of a reservation .* are: key, id\.$/],
  ['a request of limitAll', (given) => all.limitAll([given]), /^Each request .* are: ratelimit, key, /],
  ['lockout', (given) => lockout(5, '1m', given as Untyped), /^Options .* are: block, factor, /],
  ['closePeriods', (given) => closePeriods(ours(), given as Untyped), /^Options .* are: tx, limit, /],
])('the error of %s names the options that it needs in place of a number', async (name, call, message) => {
  const error = await refusalOf([name, call], 5 as Untyped)
  expect(error).toMatchObject({ code: 'INVALID_OPTION' })
  expect((error as Error).message).toMatch(message)
  expect((error as Error).message).toContain(' must be an object. ')
})

test.each([
  'limit',
  'reserve',
  'settle',
  'getRemaining',
  'getRemainingAll',
  'blockUntilReady',
  'resetUsedTokens',
  'changePlan',
  'cleanup',
])('the error of %s says that it was called without its limiter', async (name) => {
  const { [name]: method } = ours()
  const message = expect.stringMatching(/was called without its (Ratelimit|Quota)/)
  for (const call of [method, (...given: unknown[]) => ({ [name]: method })[name](...given)]) {
    await expect(call('key', '1s')).rejects.toMatchObject({ code: 'INVALID_OPTION', message })
  }
})

test.each([
  'limit',
  'reserve',
  'settle',
  'getRemaining',
  'getRemainingAll',
  'grant',
  'grants',
  'voidGrant',
  'close',
])('the error of %s says that it was called without its credits', async (name) => {
  const { [name]: method } = credits()
  const message = expect.stringContaining('was called without its Credits')
  for (const call of [method, (...given: unknown[]) => ({ [name]: method })[name](...given)]) {
    await expect(call('key', '1s')).rejects.toMatchObject({ code: 'INVALID_OPTION', message })
  }
})

test.each(['acquire', 'holders', 'cleanup', 'close'])(
  'the error of %s says that it was called without its semaphore',
  async (name) => {
    const { [name]: method } = slots()
    const message = expect.stringContaining('was called without its Semaphore')
    for (const call of [method, (...given: unknown[]) => ({ [name]: method })[name](...given)]) {
      await expect(call('key')).rejects.toMatchObject({ code: 'INVALID_OPTION', message })
    }
  },
)
