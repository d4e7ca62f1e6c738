import diagnostics from 'node:diagnostics_channel'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { afterEach, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import {
  type DecisionMessage,
  type ErrorMessage,
  type LimitResult,
  limitAll,
  Ratelimit,
  type StatementMessage,
  type WaitMessage,
} from '../../../src/index.ts'
import { spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(2, '1h')
const UNSWEPT = { cleanupProbability: 0 }
const endings: (() => void)[] = []
afterEach(() => {
  for (const end of endings.splice(0)) end()
})

/** The messages on a channel about the prefix. */
function messagesOn<Message extends { prefix: string | undefined }>(name: string, prefix: string): Message[] {
  const messages: Message[] = []
  const listener = (message: unknown) => {
    if ((message as Message).prefix === prefix) messages.push(message as Message)
  }
  diagnostics.subscribe(`drizzle-ratelimit:${name}`, listener)
  endings.push(() => diagnostics.unsubscribe(`drizzle-ratelimit:${name}`, listener))
  return messages
}

function limitNamed(prefix: string, options: { readonly dryRun?: boolean } = {}): Ratelimit {
  return new Ratelimit({ db: database.db, limiter, prefix, cleanupProbability: 0, ...options })
}

/** Fails each statement of a check. */
function brokenLimit(prefix: string, options: { readonly onError?: 'allow' } = {}): Ratelimit {
  const { db } = watch(database.db, () => {
    throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', syscall: 'connect' })
  })
  const config = { db, limiter, prefix }
  return new Ratelimit(options.onError ? { ...config, onError: options.onError } : config)
}

test('each decision is published with its answer', async () => {
  const decisions = messagesOn<DecisionMessage>('decision', 'told')
  const ratelimit = limitNamed('told')
  await ratelimit.limit('a')
  await ratelimit.limit('a', { rate: 2 })
  await database.db.transaction(async (tx) => {
    await ratelimit.limit('b', { tx })
  })
  const reserved = await ratelimit.reserve('c', { rate: 2 })
  if (reserved.success) await reserved.release()
  await limitAll([
    { ratelimit, key: 'd' },
    { ratelimit, key: 'e', rate: 2 },
  ])
  await ratelimit.blockUntilReady('f', 0)

  const common = { prefix: 'told', limit: 2, degraded: false, wouldDeny: false, joined: false }
  expect(decisions).toMatchObject([
    { ...common, key: 'a', rate: 1, success: true, remaining: 1, retryAfter: 0 },
    { ...common, key: 'a', rate: 2, success: false, remaining: 1 },
    { ...common, key: 'b', rate: 1, success: true, joined: true },
    { ...common, key: 'c', rate: 2, success: true, remaining: 0 },
    { ...common, key: 'd', rate: 1, success: true },
    { ...common, key: 'e', rate: 2, success: true },
    { ...common, key: 'f', rate: 1, success: true },
  ])
  expect(decisions[1]?.retryAfter).toBeGreaterThan(3_500_000)
  for (const { durationMs } of decisions) expect(durationMs).toBeGreaterThan(0)
})

test('spend publishes what each limit gave, or that all deny', async () => {
  const decisions = messagesOn<DecisionMessage>('decision', 'month')
  const [prepaid, errors] = [
    messagesOn<DecisionMessage>('decision', 'prepaid'),
    messagesOn<ErrorMessage>('error', 'prepaid'),
  ]
  const month = limitNamed('month')
  const config = { db: database.db, prefix: 'prepaid', cleanupProbability: 0 }
  const credits = new Credits(config)
  await credits.grant('a', 10)
  const requests = [month, credits].map((ratelimit) => ({ ratelimit, key: 'a' }))
  await spend(requests, { rate: 5 })
  await spend(requests, { rate: 8 })
  const spent = await database.db.transaction((tx) => spend(requests, { rate: 1, tx }))
  await spent.release()
  await errorOf(() => spend(requests, { rate: -1 }))

  const common = { key: 'a', degraded: false, wouldDeny: false, joined: false }
  const denied = { ...common, rate: 8, success: false }
  expect(decisions).toMatchObject([
    { ...common, rate: 2, success: true, limit: 2, remaining: 0, retryAfter: 0 },
    { ...denied, limit: 2, remaining: 0 },
    { ...common, rate: 0, success: true, joined: true },
  ])
  expect(prepaid).toMatchObject([
    { ...common, rate: 3, success: true, limit: 10, remaining: 7, retryAfter: 0 },
    { ...denied, limit: 10, remaining: 7 },
    { ...common, rate: 1, success: true, remaining: 6, joined: true },
  ])
  expect(decisions[1]?.retryAfter).toBeGreaterThan(3_500_000)
  expect(decisions[1]?.retryAfter).toBe(prepaid[1]?.retryAfter)
  for (const { durationMs } of [...decisions, ...prepaid]) expect(durationMs).toBeGreaterThan(0)
  expect(errors).toMatchObject([{ key: 'a', error: { code: 'INVALID_RATE' } }])
})

test('answers from memory are published as those of the database are', async () => {
  const decisions = messagesOn<DecisionMessage>('decision', 'prefetch')
  const denials = messagesOn<DecisionMessage>('decision', 'remembered')
  const { db, statements } = watch(database.db)
  const use = [prefetch({ tokens: 10, for: '1h' })]
  const wide = Ratelimit.fixedWindow(100, '1h')
  const prefetching = new Ratelimit({ db: database.db, limiter: wide, prefix: 'prefetch', use, ...UNSWEPT })
  const blocking = new Ratelimit({ db, limiter, prefix: 'remembered', inMemoryBlock: true, ...UNSWEPT })
  const answers: LimitResult[] = []
  for (let i = 0; i < 10; i++) answers.push(await prefetching.limit('a'))
  await blocking.limit('a', { rate: 2 })
  await blocking.limit('a')
  const sent = statements.length
  for (let i = 0; i < 3; i++) await blocking.limit('a')
  expect(statements).toHaveLength(sent)
  await prefetching.close()

  const prefetched = answers.map((answer) => answer.success && answer.prefetched === true)
  expect(prefetched).toContain(true)
  expect(decisions).toMatchObject(prefetched.map((each) => ({ key: 'a', success: true, prefetched: each })))
  const denied = { key: 'a', rate: 1, success: false, limit: 2, remaining: 0 }
  expect(denials.slice(1)).toMatchObject([denied, denied, denied, denied])
})

test('a dry run publishes what it would deny', async () => {
  const decisions = messagesOn<DecisionMessage>('decision', 'dry')
  await limitNamed('dry', { dryRun: true }).limit('a', { rate: 3 })
  expect(decisions).toMatchObject([{ success: true, wouldDeny: true }])
})

test('each wait is published', async () => {
  const waits = messagesOn<WaitMessage>('wait', 'waits')
  const clock = new TestClock()
  const short = Ratelimit.fixedWindow(1, '20ms')
  const config = { db: database.db, limiter: short, prefix: 'waits', cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...config, clock: clock.now })
  await ratelimit.limit('a')
  clock.advance(5)
  const pass = () => void clock.advance(15)
  diagnostics.subscribe('drizzle-ratelimit:wait', pass)
  endings.push(() => diagnostics.unsubscribe('drizzle-ratelimit:wait', pass))
  expect(await ratelimit.blockUntilReady('a', '10s')).toMatchObject({ success: true })
  expect(waits[0]).toEqual({ prefix: 'waits', key: 'a', waitMs: 15 })
})

test('each error is published, also if onError answers it', async () => {
  const errors = messagesOn<ErrorMessage>('error', 'errors')
  const decisions = messagesOn<DecisionMessage>('decision', 'errors')
  await errorOf(() => brokenLimit('errors').limit('a'))
  await brokenLimit('errors', { onError: 'allow' }).limit('b')
  expect(errors).toMatchObject([
    { key: 'a', error: { code: 'UNREACHABLE' } },
    { key: 'b', error: { code: 'UNREACHABLE' } },
  ])
  expect(decisions).toMatchObject([{ key: 'b', success: true, degraded: true }])
})

test('each statement is published with the number of keys that share it', async () => {
  const statements = messagesOn<StatementMessage>('statement', 'statements')
  const ratelimit = limitNamed('statements')
  await Promise.all(['a', 'b', 'c'].map((key) => ratelimit.limit(key)))
  await ratelimit.limit('a', { rate: -1 })
  await ratelimit.getRemaining('a')
  await ratelimit.resetUsedTokens('a')
  await ratelimit.cleanup()
  expect(statements.map(({ statement, keys, failed }) => [statement, keys, failed])).toEqual([
    ['take', 3, false],
    ['make', 3, false],
    ['adjust', 1, false],
    ['look', 1, false],
    ['remove', 1, false],
    ['sweep', undefined, false],
  ])
})

test('an error of the clock is published too', async () => {
  const errors = messagesOn<ErrorMessage>('error', 'clock')
  const clock = () => new Date(Number.NaN)
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'clock', clock })
  await errorOf(() => ratelimit.limit('a'))
  expect(errors).toMatchObject([{ key: 'a', error: { code: 'INVALID_CLOCK' } }])
})

test('calls that share a failed statement get errors of their own, whose stacks lead to their callers', async () => {
  const ratelimit = brokenLimit('stacks')
  async function firstCaller() {
    await ratelimit.limit('a')
  }
  async function secondCaller() {
    await ratelimit.getRemaining('b')
  }
  const [first, second] = await Promise.all([errorOf(firstCaller), errorOf(secondCaller)])
  expect(first.stack).toContain('firstCaller')
  expect(second.stack).toContain('secondCaller')
  expect([first.code, first.cause]).toEqual([
    'UNREACHABLE',
    expect.objectContaining({ code: 'ECONNREFUSED' }),
  ])
})
