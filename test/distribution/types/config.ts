import { PGlite } from '@electric-sql/pglite'
import { drizzle as drizzleProxy } from 'drizzle-orm/mysql-proxy'
import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pglite'
import { drizzle as drizzleSqlite } from 'drizzle-orm/sqlite-proxy'
import { citus } from 'drizzle-ratelimit/citus'
import { countDenials } from 'drizzle-ratelimit/denials'
import { ledger } from 'drizzle-ratelimit/ledger'
import { blocks } from 'drizzle-ratelimit/lockout'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { denied, usage } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { dashboard } from '../../../src/dashboard/index.ts'
import { headersOf } from '../../../src/http/index.ts'
import {
  type Allowed,
  type Duration,
  type LimitResult,
  limitAll,
  Ratelimit,
  type Usage,
} from '../../../src/index.ts'
import {
  closePeriods,
  prorate,
  Quota,
  reserveAll,
  settle,
  settleExpired,
  spend,
  type Threshold,
} from '../../../src/quota/index.ts'

// Checked by the type checker: each line below a directive must not compile.

const db = drizzle({ client: new PGlite() })
const limiter = Ratelimit.fixedWindow(5, '1m')
const common = { db, limiter, prefix: 'p' }

new Ratelimit(common)
new Ratelimit({ ...common, durable: true, synchronousCommit: true })
new Ratelimit({ ...common, durable: false })
// @ts-expect-error without durable there is no WAL to wait for
new Ratelimit({ ...common, synchronousCommit: true })
// @ts-expect-error
new Ratelimit({ ...common, durable: false, synchronousCommit: true })
new Quota({ ...common, keepEnded: true, cleanupProbability: 0 })
// @ts-expect-error a limiter that keeps rows does not sweep them
new Quota({ ...common, keepEnded: true, cleanupProbability: 0.1 })
new Ratelimit({ ...common, durable: true, use: [citus(), countDenials()] })
// @ts-expect-error it is in `use`
new Ratelimit({ ...common, distributed: true })
// @ts-expect-error the tables say over how many shards
new Ratelimit({ ...common, use: [citus(32)] })
void usage({ db, prefix: 'p', limiter, use: [citus()], durable: true })
// @ts-expect-error an option of the limiter, not of a call
void new Ratelimit(common).limit('k', { use: [citus()] })
new Ratelimit({ ...common, use: [countDenials()] })
new Ratelimit({ ...common, use: [countDenials({ every: '10s', top: 100 })] })
new Ratelimit({ ...common, use: [{ name: 'log', decided: ({ key }) => void key.length }, countDenials()] })
// @ts-expect-error a layer has a name
new Ratelimit({ ...common, use: [{ decided: () => {} }] })
// @ts-expect-error a list
new Ratelimit({ ...common, use: countDenials() })
// @ts-expect-error it is in `use`
new Ratelimit({ ...common, denials: {} })
// @ts-expect-error how they are counted has to be said
new Ratelimit({ ...common, use: [countDenials(true)] })
// @ts-expect-error no such option
new Ratelimit({ ...common, use: [countDenials({ each: '10s' })] })
void denied({ db, prefix: 'p', durable: false }, { since: new Date(), top: 5 })
void denied({ db, prefix: 'p', limiter, durable: true })
// @ts-expect-error denials need no limit
void denied({ db: new Ratelimit(common), limiter, durable: true })
// @ts-expect-error it says which table to read
void denied({ db, prefix: 'p' })
dashboard({ limiters: { api: new Ratelimit(common) }, authorize: () => ({ id: 'ada' }), secret: '' })
// @ts-expect-error it does not start without a decision on who may see it
dashboard({ limiters: { api: new Ratelimit(common) }, secret: '' })
// @ts-expect-error forms are signed
dashboard({ limiters: { api: new Ratelimit(common) }, authorize: () => false })
// @ts-expect-error there is no such change
dashboard({ limiters: {}, authorize: () => ({ id: 'ada', allow: ['delete'] }), secret: '' })
// @ts-expect-error true does not say who it is
dashboard({ limiters: {}, authorize: () => true, secret: '' })
// @ts-expect-error prefix is required
new Ratelimit({ db, limiter })
// @ts-expect-error no such option
new Ratelimit({ ...common, cleanup: 1 })
// @ts-expect-error a limiter comes from one of the constructors
new Ratelimit({ ...common, limiter: { tokens: 5, window: '1m' } })
// @ts-expect-error MySQL
new Ratelimit({ ...common, db: drizzleProxy(async () => ({ rows: [] })) })
// @ts-expect-error SQLite
new Ratelimit({ ...common, db: drizzleSqlite(async () => ({ rows: [] })) })

export const durations: Duration[] = [1000, '500ms', '10s', '1m', '1h', '1d', '1.5h', '10 s']
// @ts-expect-error no such unit
export const week: Duration = '1w'
// @ts-expect-error
export const bare: Duration = '10'
// @ts-expect-error no such refill
Ratelimit.tokenBucket(1, '1s', 10, { refill: 'lazy' })

function flag(_: true | undefined): void {}

export async function answers(ratelimit: Ratelimit): Promise<void> {
  const answer: LimitResult = await ratelimit.limit('key')
  if (answer.success) {
    const none: 0 = answer.retryAfter
    void none
  } else {
    // @ts-expect-error a denial may have to wait
    const none: 0 = answer.retryAfter
    void none
  }
  await db.transaction((tx) => ratelimit.limit('key', { tx, rate: -1, limiter }))
  const start = answer.success ? answer.start : 0
  const refunded: LimitResult = await ratelimit.limit('key', { rate: -1, start })
  // @ts-expect-error if the database is away, onError: 'deny' denies a refund too
  const given: Allowed = await ratelimit.limit('key', { rate: -1, start })
  void given
  // @ts-expect-error without a rate nothing is given back
  await ratelimit.limit('key', { start: refunded.reset })
  // @ts-expect-error a refund needs no force
  await ratelimit.limit('key', { rate: -1, start: 0, force: true })
  // @ts-expect-error an estimate is no refund
  await ratelimit.reserve('key', { rate: 1, start: 0 })
  const once = { id: 'event', for: '35d' } as const
  const charged = await ratelimit.limit('key', { rate: 2, once })
  flag(charged.success ? charged.repeated : undefined)
  // @ts-expect-error a denial repeats nothing
  flag(charged.success ? undefined : charged.repeated)
  // @ts-expect-error ids do not stay forever
  await ratelimit.limit('key', { once: { id: 'event' } })
  // @ts-expect-error no such time
  await ratelimit.grant('key', 1, { once: { id: 'event', for: '5w' } })
  // @ts-expect-error all of the calls have one id
  await limitAll([{ ratelimit, key: 'key', once }])
  const { signal } = new AbortController()
  await limitAll([{ ratelimit, key: 'key' }], { wait: '10s', signal, once })
  await ratelimit.blockUntilReady('key', '10s', { rate: 2, signal, once })
  // @ts-expect-error a wait in a transaction would hold its locks
  await limitAll([{ ratelimit, key: 'key' }], { wait: '10s', tx: db })
  // @ts-expect-error without a wait there is nothing to end
  await limitAll([{ ratelimit, key: 'key' }], { signal })
  // @ts-expect-error a look needs no id
  await ratelimit.getRemaining('key', { once })
  // @ts-expect-error no such option
  await ratelimit.limit('key', { cost: 1 })
  // @ts-expect-error a look costs nothing
  await ratelimit.getRemaining('key', { rate: 1 })
}

new Ratelimit({ ...common, inMemoryBlock: true, maxBlockedKeys: 5, durable: true, synchronousCommit: true })
// @ts-expect-error without inMemoryBlock nothing is blocked in memory
new Ratelimit({ ...common, maxBlockedKeys: 5 })
// @ts-expect-error
new Ratelimit({ ...common, inMemoryBlock: false, maxBlockedKeys: 5 })
new Ratelimit({ ...common, preparedStatements: false })
new Ratelimit({ ...common, connections: 2 })
new Ratelimit({ ...common, connections: 2, coalesce: true })
new Ratelimit({ ...common, coalesce: common.prefix === 'p', waitUntil: (work) => void work.catch(() => {}) })
// @ts-expect-error each call takes a connection, so a number of them means nothing
new Ratelimit({ ...common, connections: 2, coalesce: false })
new Ratelimit({ ...common, timeout: '250ms', hashKeys: true, onError: 'throw' })
new Ratelimit({ ...common, timeout: common.prefix === 'p' ? '5s' : false })
// @ts-expect-error true is no time
new Ratelimit({ ...common, timeout: true })
new Ratelimit({ ...common, hashKeys: 'a secret of these types' })
// @ts-expect-error a secret that may be missing would store the keys themselves
new Ratelimit({ ...common, hashKeys: process.env['SECRET'] })
// @ts-expect-error neither a secret nor a choice
new Ratelimit({ ...common, hashKeys: 'sha256' as 'sha256' | 1 })
new Ratelimit({ ...common, onError: 'allow', onDegraded: ({ code }) => void code })
// @ts-expect-error a thrown error is not reported
new Ratelimit({ ...common, onDegraded: () => {} })
// @ts-expect-error
new Ratelimit({ ...common, onError: 'throw', onDegraded: () => {} })
// @ts-expect-error no such answer
new Ratelimit({ ...common, onError: 'ignore' })
new Quota({ ...common, keepEnded: true, grace: '1h' })
// @ts-expect-error an ended period that may be swept cannot be corrected
new Quota({ ...common, grace: '1h' })
new Quota({ ...common, thresholds: [0.8, 1], dryRun: true })
new Quota({ ...common, thresholds: [0.8, { used: 10_000 }, { left: 0 }] })
// @ts-expect-error a threshold is one amount
new Quota({ ...common, thresholds: [{ used: 10, left: 10 }] })
// @ts-expect-error no such amount
new Quota({ ...common, thresholds: [{ remaining: 10 }] })
// @ts-expect-error a threshold has an amount
new Quota({ ...common, thresholds: [{}] })

const notes = pgTable('notes', { key: text(), units: integer() })
new Ratelimit({
  ...common,
  // The transaction is one of Drizzle's, with all of its methods.
  use: [
    ledger<typeof db>((tx, entries) =>
      tx.insert(notes).values(entries.map(({ key, units }) => ({ key, units }))),
    ),
  ],
})
const recording: Ratelimit = new Ratelimit({
  ...common,
  durable: true,
  use: [ledger<typeof db>(async (tx) => tx.rollback())],
})
// @ts-expect-error an entry has no such field
new Ratelimit({ ...common, use: [ledger(async (_, [entry]) => entry?.cost)] })
// @ts-expect-error what it writes has to be awaited
new Ratelimit({ ...common, use: [ledger(() => 5)] })
recording.prefix
new Ratelimit({ ...common, use: [prefetch({ tokens: 50, for: '1s' })], inMemoryBlock: true, dryRun: true })
new Ratelimit({ ...common, use: [prefetch({ tokens: 50, for: '1s', maxKeys: 5 }), countDenials()] })
new Quota({ ...common, durable: true, thresholds: [0.8], use: [countDenials(), blocks()] })
// @ts-expect-error it is in `use`
new Ratelimit({ ...common, blocks: true })
// @ts-expect-error it is in `use`
new Ratelimit({ ...common, prefetch: { tokens: 50, for: '1s' } })
// @ts-expect-error how many units are taken has to be said
prefetch({ for: '1s' })
// @ts-expect-error units that are not used go back
prefetch({ tokens: 50 })
// @ts-expect-error no such option
prefetch({ tokens: 50, for: '1s', keys: 5 })
export async function closed(api: Ratelimit): Promise<void> {
  await api.close()
  await api[Symbol.asyncDispose]()
}

calendarWindow(5, 'month', { timeZone: 'Europe/Berlin', anchor: new Date() })
calendarWindow(5, 'month', { rollover: { max: 5 } })
// The terms of a plan come from a row, and the platform decides these options.
declare const stored: { zone?: string; since?: Date; every?: number; rollover?: { max: number } }
const { zone: timeZone, since: anchor, every, rollover } = stored
calendarWindow(5, 'month', { timeZone, anchor, every, rollover })
declare const platform: { clock?: () => Date; waitUntil?: (work: Promise<unknown>) => void }
new Ratelimit({ db, limiter, prefix: 'web', clock: platform.clock, waitUntil: platform.waitUntil })
// @ts-expect-error how much is carried over has a most
calendarWindow(5, 'month', { rollover: true })
// @ts-expect-error no such option
calendarWindow(5, 'month', { rollover: { max: 5, periods: 2 } })
// @ts-expect-error no such period
calendarWindow(5, 'quarter')
const prorated = prorate(calendarWindow(5, 'month'), calendarWindow(9, 'month'), new Date())
new Ratelimit({ ...common, limiter: prorated.limiter })
// @ts-expect-error a plan changes at a Date
prorate(prorated.limiter, prorated.limiter, prorated.end)
// @ts-expect-error a subscription begins at a Date
calendarWindow(5, 'month', { anchor: '2026-01-31' })

new Quota({ ...common, synchronousCommit: true })
// @ts-expect-error without durable there is no WAL to wait for
new Quota({ ...common, durable: false, synchronousCommit: true })
// @ts-expect-error only a quota keeps periods that have ended
new Ratelimit({ ...common, keepEnded: true })
// @ts-expect-error
new Ratelimit({ ...common, thresholds: [0.8] })

export async function quotas(quota: Quota): Promise<void> {
  await quota.limit('key', { force: true, limiter: Ratelimit.unlimited() })
  const { used, start }: Usage = await quota.getRemaining('key')
  const began: number | undefined = start
  void [used, began]
  const reserved = await quota.reserve('key', { rate: 5 })
  // @ts-expect-error what was denied has nothing to settle
  await reserved.commit(3)
  if (reserved.success) {
    const crossed: readonly Threshold[] | undefined = (await reserved.commit(3)).success ? [] : undefined
    void crossed
  }
  const name = { key: 'key', id: 'job' }
  const settled: Allowed = await quota.settle(name, 3, { tx: db, limiter })
  void settled
  // @ts-expect-error its name settles a reservation
  await quota.settle(reserved, 3)
  // @ts-expect-error what it has cost is not optional
  await quota.settle(name)
  // @ts-expect-error the cost is not an option
  await quota.settle(name, 3, { rate: 3 })
  // @ts-expect-error an estimate is not forced
  await quota.reserve('key', { force: true })
  await usage(quota, { top: 5 })
  await usage(quota, { limiterOf: async () => limiter })
  // @ts-expect-error a limit is needed to read the rows by
  await usage({ db, prefix: 'p', durable: true })
  // @ts-expect-error it says which table to read
  await usage({ db, prefix: 'p', limiter })
}

const answer: Allowed = { success: true, limit: 5, remaining: 4, reset: 0, retryAfter: 0 }
headersOf(answer, common, { standard: 'draft-6' })
headersOf(answer, common, { standard: ['draft-8', 'legacy'] })
// @ts-expect-error both drafts have a RateLimit-Policy
headersOf(answer, common, { standard: ['draft-8', 'draft-6'] })
// @ts-expect-error no such standard
headersOf(answer, common, { standard: 'draft-7' })

export async function startTimes(api: Ratelimit): Promise<void> {
  const turn = await schedule(api, 'key', { within: '30s', rate: 2 })
  if (turn.success) {
    const [delay, startsAt]: [number, number] = [turn.delay, turn.startsAt]
    const cancelled: boolean = await turn.cancel()
    void [delay, startsAt, cancelled]
  } else {
    // @ts-expect-error what was denied has no start
    void turn.startsAt
  }
  // @ts-expect-error without a bound, the debt would have none
  await api.schedule('key')
}

const credits = new Credits({
  db,
  dated: true,
  keep: '35d',
  prefix: 'credits',
  durable: true,
  synchronousCommit: true,
  thresholds: [0.8, { left: 100 }],
  hashKeys: true,
})
new Credits({
  ...{ db, dated: true, prefix: 'credits' },
  use: [ledger(async (tx, [entry]) => [tx, entry?.grant])],
})
new Credits({ db, dated: true, prefix: 'credits', dryRun: true, connections: 2 })
new Credits({ db, prefix: 'credits', use: [citus(), countDenials()], onOtherPlan: 'throw' })
new Credits({ db, prefix: 'credits', dated: false, durable: false })
// @ts-expect-error they would be undated
new Credits<true>({ db, prefix: 'credits' })
// @ts-expect-error the same
const wronglyDated: Credits<true> = new Credits({ db, prefix: 'credits' })
// @ts-expect-error they would be dated
const wronglyUndated: Credits = new Credits({ db, prefix: 'credits', dated: true })
void [wronglyDated, wronglyUndated]
// @ts-expect-error nothing of them ends
new Credits({ db, prefix: 'credits', keep: '1d' })
// @ts-expect-error a balance has no limiter
new Credits({ db, prefix: 'credits', limiter })
// @ts-expect-error credits have no periods
new Credits({ db, prefix: 'credits', keepEnded: true })
// @ts-expect-error a grant ends such a denial at any time
new Credits({ db, prefix: 'credits', inMemoryBlock: true })
// @ts-expect-error grants have no periods
new Credits({ db, dated: true, prefix: 'credits', keepEnded: true })
new Credits({
  db,
  dated: true,
  prefix: 'credits',
  use: [countDenials()],
  onError: 'allow',
})
// @ts-expect-error nothing would call it
new Credits({ db, dated: true, prefix: 'credits', onDegraded: () => {} })
// @ts-expect-error synchronousCommit needs the durable table
new Credits({ db, dated: true, prefix: 'credits', durable: false, synchronousCommit: true })

export async function prepaid(api: Ratelimit): Promise<void> {
  await credits.grant('org', 500, { id: 'a', expires: '30d', priority: 10 })
  await credits.grant('org', 500, { id: 'b', expires: new Date() })
  // @ts-expect-error each grant has an id
  await credits.grant('org', 500)
  // @ts-expect-error
  await credits.grant('org', 500, { expires: '30d' })
  // @ts-expect-error a balance has no grants of their own
  await api.grant('org', 500, { id: 'a' })
  // @ts-expect-error
  await api.grants('org')
  // @ts-expect-error
  await api.voidGrant('org', 'a')
  const [first] = await credits.grants('org')
  const left: number | undefined = first?.left
  const voided: number = await credits.voidGrant('org', 'a', { tx: db })
  await credits.limit('org', { rate: 5, atLeast: 1, force: false, once: { id: 'event', for: '1d' } })
  // @ts-expect-error credits have no plans
  await credits.limit('org', { limiter })
  // @ts-expect-error grants are no windows
  await credits.limit('org', { rate: -5, start: 0 })
  const reserved = await credits.reserve('org', { rate: 5 })
  // @ts-expect-error a denial needs no settling
  await reserved.commit(5)
  if (reserved.success) await reserved.commit(5, { tx: db })
  // @ts-expect-error a reset would take away paid credits, or give back used ones
  await credits.resetUsedTokens('org')
  await credits.blockUntilReady('org', '1s', { rate: 5, once: { id: 'event', for: '1d' } })
  // @ts-expect-error credits have no plans
  await credits.blockUntilReady('org', '1s', { limiter })
  // @ts-expect-error
  await schedule(credits, 'org', { within: '1s' })
  const { denied } = await limitAll([
    { ratelimit: api, key: 'org', rate: 2 },
    { ratelimit: credits, key: 'org', rate: 2, force: true },
  ])
  // @ts-expect-error credits have no plans
  await limitAll([{ ratelimit: credits, key: 'org', limiter }])
  await spend([{ ratelimit: credits, key: 'org' }], { rate: 1 })
  await spend(
    [
      { ratelimit: api, key: 'org', limiter },
      { ratelimit: credits, key: 'org' },
    ],
    { rate: 1, atLeast: 1, once: { id: 'event', for: '1d' }, tx: db },
  )
  // @ts-expect-error credits have no plans
  await spend([{ ratelimit: credits, key: 'org', limiter }], { rate: 1 })
  const estimates = await reserveAll([
    { ratelimit: api, key: 'org', limiter },
    { ratelimit: credits, key: 'org', rate: 5 },
  ])
  if (estimates.success) await estimates.commit([1, 4], { limiters: [limiter] })
  await reserveAll([{ ratelimit: credits, key: 'org' }], { id: 'job', expires: '1h' })
  await settle([{ ratelimit: credits, key: 'org' }], 'job', { actual: [3] })
  // @ts-expect-error an estimate is not forced
  await reserveAll([{ ratelimit: credits, key: 'org', force: true }])
  const several = [{ ratelimit: api, key: 'org' }]
  const spent = await spend(several, { rate: 1, id: 'job', expires: '1h' })
  if (spent.success) await spent.commit(3, { debt: 'first' })
  await settle(several, 'job', { actual: 3, debt: 'first' })
  await settle(several, 'job', { actual: [3] })
  // @ts-expect-error a name has an end
  await spend(several, { rate: 1, id: 'job' })
  // @ts-expect-error a name is charged once by itself
  await spend(several, { rate: 1, id: 'job', expires: '1h', once: { id: 'a', for: '1d' } })
  // @ts-expect-error
  await reserveAll(several, { expires: '1h' })
  // @ts-expect-error each limit has a cost
  await settle(several, 'job', { actual: [3], debt: 'first' })
  // @ts-expect-error
  await settle(several, 'job', {})
  // @ts-expect-error
  await api.limit('org', { dated: true })
  const balance = new Credits({ db, prefix: 'balance' })
  await settleExpired(balance, { tx: db, as: 'release' })
  await settleExpired(api, { tx: db, as: 'release', limiterOf: () => limiter })
  // @ts-expect-error credits have no plans
  await settleExpired(balance, { tx: db, as: 'release', limiterOf: () => limiter })
  // @ts-expect-error it needs a transaction
  await settleExpired(api, { as: 'release' })
  // @ts-expect-error the limiter comes first
  await settleExpired(db, { ratelimit: api, as: 'release' })
  // @ts-expect-error credits have no plans
  await usage(balance, { limiterOf: () => limiter })
  const tx = db
  await closePeriods(api, { tx, limit: 5, after: 'a', grace: '1h' })
  await closePeriods(api, { tx, limiterOf: async () => limiter })
  await closePeriods({ db, prefix: 'p', limiter, durable: true }, { tx })
  await closePeriods({ db, prefix: 'p', limiterOf: () => limiter, durable: false, use: [citus()] }, { tx })
  // @ts-expect-error it needs a transaction
  await closePeriods(api, { limit: 5 })
  // @ts-expect-error they say which table
  await closePeriods({ db, prefix: 'p', limiter }, { tx })
  // @ts-expect-error they have a limit
  await closePeriods({ db, prefix: 'p', durable: true }, { tx })
  // @ts-expect-error they have their limits themselves
  await closePeriods({ db, prefix: 'p', limiter, durable: true }, { tx, limiterOf: () => limiter })
  // @ts-expect-error the object knows its table
  await closePeriods(api, { tx, durable: true })
  // @ts-expect-error credits have no periods
  await closePeriods(balance, { tx })
  // @ts-expect-error the limiter comes first
  await closePeriods(tx, { prefix: 'p', limiter })
  await balance.grant('org', 500)
  await balance.grant('org', 500, { once: { id: 'payment', for: '90d' } })
  // @ts-expect-error a balance has no grants of their own
  await balance.grant('org', 500, { id: 'a' })
  // @ts-expect-error
  await balance.voidGrant('org', 'a')
  const [whole] = await balance.grants('org')
  // @ts-expect-error a balance has no end
  void whole?.expires
  void [left, voided, denied, whole?.left]
}
