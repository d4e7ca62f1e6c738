import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { usage } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type DecisionMessage, limitAll, type Once, Ratelimit } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { HOUR_MS, kinds, oneOfEachKind, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()
const TEN_TOKENS = TEN['calendar month']

function once(id: string): Once {
  return { id, for: '35d' }
}

describe.each(oneOfEachKind)('$name', ({ limiter }) => {
  test('an id is charged once, and the answer is the one of a plain call', async () => {
    const { quota, clock } = quotaOn(database, limiter)
    const plain = quotaOn(database, limiter, { clock: clock.now }).quota
    const answer = await quota.limit('key', { rate: 4, once: once('event') })
    expect(answer).toEqual(await plain.limit('key', { rate: 4 }))
    const repeated = await quota.limit('key', { rate: 4, once: once('event') })
    const { remaining, reset, limit } = answer
    expect(repeated).toEqual({ success: true, repeated: true, retryAfter: 0, remaining, reset, limit })
    expect(await quota.limit('key', { rate: 4, once: once('other') })).toEqual(
      await plain.limit('key', { rate: 4 }),
    )
  })

  test('a denial is the one of a plain call, and does not use up the id', async () => {
    const { quota, clock, rows } = quotaOn(database, limiter)
    const plain = quotaOn(database, limiter, { clock: clock.now }).quota
    for (const each of [quota, plain]) await each.limit('key', { rate: 8 })
    const before = await rows()
    const denied = await quota.limit('key', { rate: 4, once: once('event') })
    expect(denied).toEqual(await plain.limit('key', { rate: 4 }))
    expect(denied.success).toBe(false)
    expect(await rows()).toEqual(before)
    expect(await quota.cleanup()).toBe(0)
    clock.advance(denied.retryAfter)
    expect(await quota.limit('key', { rate: 4, once: once('event') })).not.toHaveProperty('repeated')
    expect(await quota.limit('key', { rate: 4, once: once('event') })).toHaveProperty('repeated')
  })

  test('a repeated call that would be denied has the id still', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 10, once: once('event') })
    const repeated = await quota.limit('key', { rate: 10, once: once('event') })
    expect(repeated).toMatchObject({ success: true, repeated: true, remaining: 0 })
  })

  test('a refund and a forced charge are made once', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 8 })
    const refund = () => quota.limit('key', { rate: -3, once: once('refund') })
    expect(await refund()).toMatchObject({ returned: 3, remaining: 5 })
    expect(await refund()).toMatchObject({ repeated: true, remaining: 5 })
    const force = () => quota.limit('key', { rate: 20, force: true, once: once('force') })
    expect(await force()).toMatchObject({ success: true, remaining: 0 })
    const { used } = await quota.getRemaining('key')
    expect(await force()).toMatchObject({ repeated: true, remaining: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({ used })
  })

  test('a call that takes what there is does so once', async () => {
    const { quota, clock } = quotaOn(database, limiter)
    const plain = quotaOn(database, limiter, { clock: clock.now }).quota
    for (const each of [quota, plain]) await each.limit('key', { rate: 4 })
    const options = { rate: 8, atLeast: 2 }
    const part = await quota.limit('key', { ...options, once: once('event') })
    expect(part).toEqual(await plain.limit('key', options))
    expect(part).toMatchObject({ granted: 6, remaining: 0 })
    expect(await quota.limit('key', { ...options, once: once('other') })).toEqual(
      await plain.limit('key', options),
    )
    const repeated = await quota.limit('key', { ...options, once: once('event') })
    expect(repeated).toMatchObject({ repeated: true, granted: 0, remaining: 0 })
  })

  test('an estimate is reserved once, and the first call settles it', async () => {
    const { quota, clock } = quotaOn(database, limiter)
    const plain = quotaOn(database, limiter, { clock: clock.now }).quota
    const options = { rate: 6, once: once('job') }
    const [reserved, again] = [await quota.reserve('key', options), await quota.reserve('key', options)]
    if (!reserved.success || !again.success) throw new Error('denied')
    expect(again).toMatchObject({ repeated: true, remaining: 4 })
    await expect(again.commit(9)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    await expect(again.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    const own = allowed(await plain.reserve('key', { rate: 6 }))
    expect(await reserved.commit(2)).toEqual(await own.commit(2))
  })
})

test.each(kinds)('$name: any calls with ids are the calls of the first with each id', async ({ limiter }) => {
  const call = fc.record({
    id: fc.nat({ max: 4 }),
    rate: fc.integer({ min: 1, max: 6 }),
    later: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 12 }), async (calls) => {
      const { quota, clock } = quotaOn(database, limiter)
      const plain = quotaOn(database, limiter, { clock: clock.now }).quota
      const used = new Set<number>()
      for (const { id, rate, later } of calls) {
        if (later) clock.advance(HOUR_MS)
        const answer = await quota.limit('key', { rate, once: once(`event ${id}`) })
        if (used.has(id)) expect(answer).toMatchObject({ success: true, repeated: true })
        else expect(answer).toEqual(await plain.limit('key', { rate }))
        if (answer.success) used.add(id)
        expect(await quota.getRemaining('key')).toEqual(await plain.getRemaining('key'))
      }
    }),
    runs(5),
  )
})

test('an id ends by itself, and its row is deleted afterwards', async () => {
  const { quota, clock } = quotaOn(database, Ratelimit.fixedWindow(10, '90d'))
  const charge = () => quota.limit('key', { once: { id: 'event', for: '10h' } })
  await charge()
  clock.advance(10 * HOUR_MS - 1)
  expect(await charge()).toMatchObject({ repeated: true, remaining: 9 })
  clock.advance(1)
  expect(await charge()).toMatchObject({ success: true, remaining: 8 })
  clock.advance(12 * HOUR_MS)
  expect(await quota.cleanup()).toBe(1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 2 })
})

test('calls sweep the ids that have ended, even if they keep the periods that have ended', async () => {
  const { quota, clock, prefix } = quotaOn(database, TEN_TOKENS, { keepEnded: true })
  for (let i = 0; i < 9; i++) await quota.limit('key', { once: { id: `event ${i}`, for: '1h' } })
  clock.advance(2 * HOUR_MS)
  const ids = () => database.rows(`select 1 from rate_limit_ephemeral where prefix like '%once/${prefix}'`)
  expect(await ids()).toHaveLength(9)
  await expect
    .poll(
      async () => {
        await quota.limit('other', { rate: -1, once: { id: 'refund', for: '1h' } })
        return (await ids()).length
      },
      { timeout: 20_000 },
    )
    .toBe(1)
})

test('all keys of a limiter share the ids, and no list of keys shows them', async () => {
  const { quota } = quotaOn(database, TEN_TOKENS)
  await quota.limit('one', { once: once('event') })
  expect(await quota.limit('two', { once: once('event') })).toMatchObject({ repeated: true, remaining: 10 })
  const listed = await usage(quota)
  expect(listed.map(({ key }) => key)).toEqual(['one'])
  const other = quotaOn(database, TEN_TOKENS).quota
  expect(await other.limit('one', { once: once('event') })).not.toHaveProperty('repeated')
})

test('a limit that is not enforced uses up the id too', async () => {
  const { quota } = quotaOn(database, TEN_TOKENS, { dryRun: true })
  const charge = () => quota.limit('key', { rate: 11, once: once('event') })
  expect(await charge()).toMatchObject({ success: true, wouldDeny: { success: false } })
  expect(await charge()).toMatchObject({ success: true, repeated: true })
})

test('a plan without a limit uses up the id too', async () => {
  const { quota } = quotaOn(database, Ratelimit.unlimited())
  const charge = () => quota.limit('key', { once: once('event') })
  expect(await charge()).not.toHaveProperty('repeated')
  expect(await charge()).toMatchObject({ success: true, repeated: true, remaining: Infinity })
})

test('a limiter that hashes its keys hashes the ids, which may then be long', async () => {
  const { quota, prefix } = quotaOn(database, TEN_TOKENS, { hashKeys: true })
  const charge = () => quota.limit('key', { once: once('long'.repeat(1000)) })
  await charge()
  expect(await charge()).toHaveProperty('repeated')
  const rows = await database.rows(`select key from rate_limit_ephemeral where prefix like '%${prefix}'`)
  expect(rows.map(({ key }) => String(key))).toEqual([
    expect.stringMatching(/^[\da-f]{64}$/),
    expect.stringMatching(/^[\da-f]{64}$/),
  ])
})

test('a rollback makes the id free again', async () => {
  const { quota } = quotaOn(database, TEN_TOKENS)
  const charge = (tx?: Parameters<Parameters<typeof database.db.transaction>[0]>[0]) =>
    quota.limit('key', { rate: 3, tx, once: once('event') })
  await undone(database.db, async (tx) => {
    expect(await charge(tx)).toMatchObject({ remaining: 7 })
    expect(await charge(tx)).toMatchObject({ repeated: true, remaining: 7 })
  })
  await database.db.transaction(async (tx) => {
    expect(await charge(tx)).not.toHaveProperty('repeated')
  })
  expect(await charge()).toMatchObject({ repeated: true, remaining: 7 })
})

test('a grant adds once', async () => {
  const { credits } = creditsOn(database)
  const grant = (amount: number) => credits.grant('key', amount, { once: once('payment') })
  expect(await grant(100)).toEqual({ limit: 100, remaining: 100, reset: expect.any(Number), used: 0 })
  expect(await grant(100)).toMatchObject({ repeated: true, remaining: 100, used: 0 })
  await credits.limit('key', { rate: 30 })
  expect(await credits.grant('key', 5, { once: once('other') })).toMatchObject({ limit: 105, remaining: 75 })
  expect(await credits.getRemaining('key')).toMatchObject({ limit: 105, used: 30 })
})

test('a grant that is too large is refused, and does not use up the id', async () => {
  const { credits } = creditsOn(database)
  await credits.grant('key', 10)
  const most = credits.grant('key', Number.MAX_SAFE_INTEGER, { once: once('payment') })
  await expect(most).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
  expect(await credits.grant('key', 1, { once: once('payment') })).toEqual(
    expect.objectContaining({ limit: 11, remaining: 11 }),
  )
  await expect(credits.grant('key', 0, { once: once('none') })).rejects.toMatchObject({
    code: 'INVALID_RATE',
  })
})

test('limitAll charges all of the limits once', async () => {
  const { quota: first, clock } = quotaOn(database, TEN_TOKENS)
  const { quota: second } = quotaOn(database, TEN['fixed window'], { clock: clock.now })
  const requests = [first, second].map((ratelimit) => ({ ratelimit, key: 'key', rate: 6 }))
  const charge = () => limitAll(requests, { once: once('event') })
  expect(await charge()).toMatchObject({ success: true, results: [{ remaining: 4 }, { remaining: 4 }] })
  const repeated = await charge()
  expect(repeated).toMatchObject({ success: true, repeated: true, denied: [], retryAfter: 0 })
  expect(repeated.results).toMatchObject([
    { remaining: 4, repeated: true },
    { remaining: 4, repeated: true },
  ])
  const denied = await limitAll(requests, { once: once('other') })
  expect(denied).toMatchObject({ success: false })
  expect(denied).not.toHaveProperty('repeated')
  clock.advance(40 * 24 * HOUR_MS)
  expect(await limitAll(requests, { once: once('other') })).not.toHaveProperty('repeated')
})

test('reserveAll charges estimates once, and the first call settles them', async () => {
  const { quota: month, clock } = quotaOn(database, TEN_TOKENS)
  const { credits, prefix } = creditsOn(database, { clock: clock.now })
  const { db } = database
  const dated = new Credits({ db, dated: true, prefix: `${prefix}, dated`, clock: clock.now })
  await credits.grant('key', 10)
  await dated.grant('key', 10, { id: 'payment' })
  const request = { key: 'key', rate: 6 }
  const requests = [month, credits, dated].map((ratelimit) => ({ ratelimit, ...request }))
  const reserve = (id: string) => reserveAll(requests, { once: once(id) })
  const left = async () => {
    const looks = [month, credits, dated].map((ratelimit) => ratelimit.getRemaining('key'))
    return (await Promise.all(looks)).map(({ remaining }) => remaining)
  }
  expect(await reserve('one')).not.toHaveProperty('repeated')
  const [first, again] = [await reserve('two'), await reserve('one')]
  expect(first).toMatchObject({ success: false })
  if (!again.success) throw new Error('denied')
  expect(again).toMatchObject({ repeated: true, results: Array(3).fill({ repeated: true, remaining: 4 }) })
  await expect(again.commit([9, 9, 9])).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  await expect(again.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await left()).toEqual([4, 4, 4])
})

test('spend takes the cost once', async () => {
  const { quota: month, clock } = quotaOn(database, calendarWindow(10, 'month'))
  const { credits } = creditsOn(database, { clock: clock.now })
  await credits.grant('key', 10)
  const requests = [month, credits].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const spendFor = (rate: number, id: string) => spend(requests, { rate, once: once(id) })
  expect(await spendFor(12, 'event')).toMatchObject({ success: true, granted: [10, 2] })
  const repeated = await spendFor(12, 'event')
  expect(repeated).toMatchObject({ success: true, repeated: true, granted: [0, 0], retryAfter: 0 })
  expect(repeated.results).toMatchObject([{ remaining: 0 }, { remaining: 8 }])
  expect(await repeated.release()).toMatchObject({ granted: [0, 0] })
  expect(await spendFor(9, 'too much')).toMatchObject({ success: false, granted: [0, 0] })
  expect(await spendFor(8, 'too much')).toMatchObject({ success: true, granted: [0, 8] })
  expect(await credits.getRemaining('key')).toMatchObject({ used: 10 })
})

test('limits that count fractions spend fractions together with an id', async () => {
  const { quota, clock } = quotaOn(database, TEN['interval bucket'])
  const { quota: other } = quotaOn(database, TEN['continuous bucket'], { clock: clock.now })
  await quota.limit('key', { rate: 9.5 })
  const requests = [quota, other].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const spent = await spend(requests, { rate: 1, once: once('event') })
  expect(spent.granted).toEqual([0.5, 0.5])
})

test('a repeated call is published with a rate of 0', async () => {
  const { quota, prefix } = quotaOn(database, TEN_TOKENS)
  const rates: number[] = []
  const note = (message: unknown) => {
    const { prefix: of, rate } = message as DecisionMessage
    if (of.includes(prefix)) rates.push(rate)
  }
  subscribe('drizzle-ratelimit:decision', note)
  onTestFinished(() => void unsubscribe('drizzle-ratelimit:decision', note))
  for (let i = 0; i < 2; i++) await quota.limit('key', { rate: 3, once: once('event') })
  expect(rates).toEqual([3, 0])
})

test.each([
  [{ id: '', for: '1d' }, 'INVALID_OPTION'],
  [{ id: 7, for: '1d' }, 'INVALID_OPTION'],
  [{ id: 'a\0b', for: '1d' }, 'INVALID_OPTION'],
  [{ id: 'x'.repeat(1024), for: '1d' }, 'INVALID_OPTION'],
  [{ id: 'event' }, 'INVALID_DURATION'],
  [{ id: 'event', for: 0 }, 'INVALID_DURATION'],
  [{ id: 'event', for: '1d', until: 1 }, 'INVALID_OPTION'],
  [null, 'INVALID_OPTION'],
  ['event', 'INVALID_OPTION'],
])('once: %j is refused before any SQL with %s', async (given, code) => {
  const { quota } = quotaOn(database, TEN_TOKENS)
  const { credits: balance } = creditsOn(database)
  const options = { once: given as Once }
  const requests = [{ ratelimit: quota, key: 'key' }]
  const refused = { code }
  await expect(quota.limit('key', options)).rejects.toMatchObject(refused)
  await expect(quota.reserve('key', options)).rejects.toMatchObject(refused)
  await expect(balance.grant('key', 1, options)).rejects.toMatchObject(refused)
  await expect(limitAll(requests, options)).rejects.toMatchObject(refused)
  await expect(reserveAll(requests, options)).rejects.toMatchObject(refused)
  await expect(spend(requests, { ...options, rate: 1 })).rejects.toMatchObject(refused)
})

test('a call during an outage that is let pass does not use up the id', async () => {
  const clock = new TestClock()
  const broken = { execute: () => Promise.reject(Object.assign(new Error(), { code: 'ECONNREFUSED' })) }
  const { quota } = quotaOn(database, TEN_TOKENS, {
    ...{ clock: clock.now, onError: 'allow', cleanupProbability: 0 },
    db: { ...broken, transaction: () => Promise.reject(new Error()) } as never,
  })
  const answer = await quota.limit('key', { once: once('event') })
  expect(answer).toMatchObject({ success: true, degraded: true })
  expect(answer).not.toHaveProperty('repeated')
})
