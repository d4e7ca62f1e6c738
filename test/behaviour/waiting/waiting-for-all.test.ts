import { channel } from 'node:diagnostics_channel'
import { describe, expect, test, vi } from 'vitest'
import { type Database, type Limiter, limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { ownTimers } from '../../support/timers.ts'
import { clock, counting, database, holding, letWait, sent, untilEqual, waitEnds } from './passing-time.ts'

/** One request and 100 units, as the calls of a model have limits by requests and by tokens. */
function requestsOf(
  prefix: string,
  { db = counting(database.db), requests = Ratelimit.fixedWindow(1, '1m') as Limiter } = {},
) {
  const common = { db, clock, cleanupProbability: 0 }
  const byRequest = new Ratelimit({ ...common, limiter: requests, prefix: `${prefix}, requests` })
  const tokens = Ratelimit.tokenBucket(100, '1s', 200)
  const byToken = new Ratelimit({ ...common, limiter: tokens, prefix: `${prefix}, tokens` })
  const of = (rate = 100) =>
    [
      { ratelimit: byRequest, key: 'org' },
      { ratelimit: byToken, key: 'org', rate },
    ] as const
  return { byRequest, byToken, of }
}

const wait = '2m'

test('waits until all are allowed, to the millisecond, by one statement for each check', async () => {
  const { of, byToken } = requestsOf('waits')
  await limitAll(of())
  const before = { statements: sent.statements, now: performance.now() }
  expect(await letWait(limitAll(of(), { wait }))).toMatchObject({ success: true, denied: [], retryAfter: 0 })
  expect(sent.at - before.now).toBe(60_000)
  expect(sent.statements - before.statements).toBe(2)
  expect(await byToken.getRemaining('org')).toMatchObject({ used: 100 })
})

test('waits for the one that takes longest', async () => {
  const { of } = requestsOf('longest', { requests: Ratelimit.fixedWindow(100, '1m') })
  await limitAll(of(200))
  const before = performance.now()
  expect(await letWait(limitAll(of(200), { wait }))).toMatchObject({ success: true })
  expect(sent.at - before).toBe(2000)
})

test.each([
  ['the wait is too short', 59_999, 100, 60_000],
  ['it is 0', 0, 100, 60_000],
  ['the time never comes', '30d', 201, Number.POSITIVE_INFINITY],
] as const)('gives the denial at once if %s', async (name, wait, rate, retryAfter) => {
  const { of } = requestsOf(name)
  await limitAll(of())
  const before = { statements: sent.statements, now: performance.now() }
  expect(await limitAll(of(rate), { wait })).toMatchObject({ success: false, retryAfter })
  expect(performance.now()).toBe(before.now)
  expect(sent.statements - before.statements).toBe(1)
})

test('calls that wait together get their units one after another, and never more than there are', async () => {
  const { of, byRequest, byToken } = requestsOf('together', { requests: Ratelimit.fixedWindow(3, '1s') })
  const doneAt: number[] = []
  const calls = Array.from({ length: 8 }, async () => {
    const { success } = await limitAll(of(), { wait })
    expect(success).toBe(true)
    doneAt.push(performance.now())
  })
  const before = performance.now()
  await letWait(Promise.all(calls))
  // The bucket lets two pass at once, and one each second after that.
  expect(doneAt.map((at) => Math.round((at - before) / 1000))).toEqual([0, 0, 1, 2, 3, 4, 5, 6])
  expect(await byRequest.getRemaining('org')).toMatchObject({ used: 1 })
  expect(await byToken.getRemaining('org')).toMatchObject({ used: 200 })
})

describe('a signal', () => {
  // The signal of a semaphore's lease has such a reason.
  const reason = new RatelimitError('LEASE_ENDED', 'enough')

  test('ends the wait with its reason, and leaves no timer', async () => {
    const { of } = requestsOf('signal')
    await limitAll(of())
    const controller = new AbortController()
    const refused = expect(limitAll(of(), { wait, signal: controller.signal })).rejects.toBe(reason)
    while (waitEnds.length === 0) await new Promise(setImmediate)
    controller.abort(reason)
    await refused
    expect(ownTimers()).toEqual([])
  })

  test('that has aborted keeps the calls from being made', async () => {
    const { of } = requestsOf('aborted')
    const before = sent.statements
    await expect(limitAll(of(), { wait, signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    expect(sent.statements).toBe(before)
  })

  test.each([false, true])(
    'during a check: what it charges is given back (with an id: %s)',
    async (usesId) => {
      const held = holding(counting(database.db))
      const { of, byRequest, byToken } = requestsOf(`late ${usesId}`, {
        db: held.db,
        requests: Ratelimit.fixedWindow(5, '1m'),
      })
      await limitAll(of(7))
      const used = async () => [
        (await byRequest.getRemaining('org')).used,
        (await byToken.getRemaining('org')).used,
      ]
      const once = { once: usesId ? ({ id: 'event', for: '1h' } as const) : undefined }
      const [before, controller] = [sent.statements, new AbortController()]
      held.close()
      const refused = expect(limitAll(of(), { wait, signal: controller.signal, ...once })).rejects.toBe(
        reason,
      )
      while (sent.statements === before) await new Promise(setImmediate)
      controller.abort(reason)
      await refused
      held.open()
      await untilEqual(used, usesId ? [2, 107] : [1, 7])
      if (usesId) expect(await limitAll(of(), once)).toMatchObject({ repeated: true })
    },
  )
})

/** Ends a wait of 1,500 ms while its second check, which comes after 1,000 ms, has no answer yet. */
async function endDuringCheck(held: Pick<ReturnType<typeof holding>, 'close'>): Promise<void> {
  while (waitEnds.length === 0) await new Promise(setImmediate)
  held.close()
  const before = sent.statements
  vi.advanceTimersByTime(1000)
  while (sent.statements === before) await new Promise(setImmediate)
  vi.advanceTimersByTime(500)
}

test('a wait that is over during a check gives the last denial, and what the check charges is given back', async () => {
  const held = holding(counting(database.db))
  const { of, byRequest } = requestsOf('over', { db: held.db, requests: Ratelimit.fixedWindow(1, 1000) })
  await limitAll(of())
  const waiting = limitAll(of(), { wait: 1500 })
  await endDuringCheck(held)
  expect(await waiting).toMatchObject({ success: false, retryAfter: 1000 })
  held.open()
  await untilEqual(async () => (await byRequest.getRemaining('org')).used, 0)
})

test('a wait with an id that is over during a check does not say that nothing was charged', async () => {
  const held = holding(counting(database.db))
  const limiter = Ratelimit.fixedWindow(1, 1000)
  const ratelimit = new Ratelimit({ db: held.db, clock, limiter, prefix: 'over, id', cleanupProbability: 0 })
  await ratelimit.limit('org')
  const once = { id: 'event', for: '1h' } as const
  const waiting = limitAll([{ ratelimit, key: 'org' }], { wait: 1500, once })
  const unknown = expect(waiting).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  await endDuringCheck(held)
  await unknown
  held.open()
})

test('a check goes on after its own timeout if the wait is over, and what it charges is given back', async () => {
  const held = holding(counting(database.db))
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const common = { db: held.db, clock, limiter, timeout: 1000, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...common, prefix: 'own timeout' })
  const used = async () => (await ratelimit.getRemaining('org')).used
  await ratelimit.limit('org')
  const [before, controller] = [sent.statements, new AbortController()]
  const { signal } = controller
  held.close()
  const refused = expect(limitAll([{ ratelimit, key: 'org' }], { wait, signal })).rejects.toThrow('enough')
  while (sent.statements === before) await new Promise(setImmediate)
  controller.abort(new Error('enough'))
  await refused
  vi.advanceTimersByTime(2000)
  held.open()
  // The row is seen to be free before the answer of the statement that has freed it.
  await untilEqual(async () => [await used(), ownTimers()], [1, []])
})

test.each(['one call', 'a list'])('%s: a late charge that cannot be given back is told', async (kind) => {
  let fails = false
  const db = counting(database.db)
  const execute: Database['execute'] = (query) =>
    fails ? Promise.reject(new Error('the database is gone')) : db.execute(query)
  const held = holding({ ...db, execute })
  const common = { db: held.db, clock, limiter: Ratelimit.fixedWindow(5, '1m'), cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...common, prefix: `told of ${kind}` })
  await ratelimit.limit('org')
  const errors: unknown[] = []
  const note = (told: unknown) => void errors.push(told)
  const [before, controller] = [sent.statements, new AbortController()]
  const { signal } = controller
  held.close()
  const waiting: Promise<unknown> =
    kind === 'a list'
      ? limitAll([{ ratelimit, key: 'org' }], { wait, signal })
      : ratelimit.blockUntilReady('org', wait, { signal })
  const refused = expect(waiting).rejects.toThrow('enough')
  while (sent.statements === before) await new Promise(setImmediate)
  controller.abort(new Error('enough'))
  await refused
  channel('drizzle-ratelimit:error').subscribe(note)
  fails = true
  held.open()
  await untilEqual(async () => {
    await new Promise(setImmediate)
    return errors.length
  }, 1)
  channel('drizzle-ratelimit:error').unsubscribe(note)
  expect(errors).toMatchObject([
    { prefix: `told of ${kind}`, key: 'org', error: { code: 'OUTCOME_UNKNOWN' } },
  ])
})

test('an error of a check ends the wait', async () => {
  let fails = false
  const db = counting(database.db)
  const execute: Database['execute'] = (query) =>
    fails ? Promise.reject(new Error('the database is gone')) : db.execute(query)
  const { of } = requestsOf('error', { db: { ...db, execute } })
  await limitAll(of())
  fails = true
  await expect(limitAll(of(), { wait })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(ownTimers()).toEqual([])
})

describe('refuses before any SQL', () => {
  test.each([
    ['a signal without a wait', { signal: new AbortController().signal }, 'INVALID_OPTION'],
    ['something else than a signal', { wait, signal: {} }, 'INVALID_OPTION'],
    ['a wait that is no duration', { wait: 'long' }, 'INVALID_DURATION'],
    ['a wait below 0', { wait: -1 }, 'INVALID_DURATION'],
  ])('%s', async (_, options, code) => {
    const { of } = requestsOf('refused')
    const before = sent.statements
    await expect(limitAll(of(), options as never)).rejects.toMatchObject({ code })
    expect(sent.statements).toBe(before)
  })

  test('a wait in a transaction, and by limiters on one', async () => {
    const refused = {
      code: 'INVALID_OPTION',
      message: expect.stringMatching(/^limitAll with wait cannot be combined/),
    }
    await database.db.transaction(async (tx) => {
      const { of } = requestsOf('tx')
      await expect(limitAll(of(), { wait, tx } as never)).rejects.toMatchObject(refused)
      await expect(limitAll(requestsOf('on tx', { db: tx }).of(), { wait: 0 })).rejects.toMatchObject(refused)
    })
  })
})

describe('an answer that is lost', () => {
  const once = { id: 'event', for: '1h' } as const
  const waits: Record<string, (ratelimit: Ratelimit) => Promise<{ success: boolean }>> = {
    'of one call': (ratelimit: Ratelimit) => ratelimit.blockUntilReady('org', wait),
    'of a list': (ratelimit: Ratelimit) => limitAll([{ ratelimit, key: 'org' }], { wait }),
  }

  /** A limiter whose first answer of a wait is lost. */
  async function losing(prefix: string) {
    let loses = false
    const db = counting(database.db)
    const execute: Database['execute'] = (query) => {
      const answer = db.execute(query)
      if (!loses) return answer
      loses = false
      const lost = new Error('the connection has ended')
      return answer.then(() => Promise.reject(lost))
    }
    const limiter = Ratelimit.fixedWindow(5, '1h')
    const common = { db: { ...db, execute }, clock, limiter, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...common, onError: 'deny', prefix })
    await ratelimit.limit('org')
    loses = true
    return { ratelimit, used: async () => (await ratelimit.getRemaining('org')).used }
  }

  test.each(Object.entries(waits))('ends the wait %s, which charges no second time', async (name, call) => {
    const { ratelimit, used } = await losing(`lost ${name}`)
    expect(await letWait(call(ratelimit))).toMatchObject({ success: false })
    expect(await used()).toBe(2)
  })

  test('is asked for again if the call has an id', async () => {
    const { ratelimit, used } = await losing('lost with an id')
    const request = { ratelimit, key: 'org' }
    expect(await letWait(limitAll([request], { wait, once }))).toMatchObject({ repeated: true })
    expect(await used()).toBe(2)
  })
})
