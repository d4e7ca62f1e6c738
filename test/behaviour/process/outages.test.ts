import { blocks } from 'drizzle-ratelimit/lockout'
import { schedule } from 'drizzle-ratelimit/schedule'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, Ratelimit, type RatelimitConfig, RatelimitError } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import '../../support/loaded.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { isGate } from '../../support/runs.ts'
import { fakeTime, ownTimers, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(10, '1h')
let prefix = 0

// The timers are the test's; the driver keeps its own.
beforeEach(fakeTime)
useFakeTime()

/** A limiter whose statements wait until the test lets them through. */
function stalling(config: Partial<RatelimitConfig> = {}) {
  const gates: (() => void)[] = []
  let isOpen = false
  const { db, statements } = watch(database.db, () => {
    if (isOpen) return undefined
    return new Promise<void>((resolve) => gates.push(resolve))
  })
  const ratelimit = new Ratelimit({
    ...{ db, limiter, prefix: `stalls ${++prefix}`, cleanupProbability: 0, connections: 1 },
    ...config,
  } as RatelimitConfig)
  const open = () => {
    isOpen = true
    for (const gate of gates) gate()
  }
  return { db, ratelimit, open, statements }
}

async function turns(count = 3): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise(setImmediate)
}

async function used(ratelimit: Ratelimit, key = 'key'): Promise<number> {
  const { prefix: same } = ratelimit
  const { used: amount } = await new Ratelimit({ db: database.db, limiter, prefix: same }).getRemaining(key)
  return amount
}

describe('timeout', () => {
  test.each<readonly [string, (ratelimit: Ratelimit) => Promise<unknown>]>([
    ['blockUntilReady', (ratelimit) => ratelimit.blockUntilReady('key', 1000)],
    ['schedule', (ratelimit) => schedule(ratelimit, 'key', { within: 0 })],
  ])('bounds the look at a block and the check of %s together', async (_, start) => {
    const gates: (() => void)[] = []
    const { db } = watch(database.db, () => new Promise<void>((resolve) => gates.push(resolve)))
    const bucket = Ratelimit.tokenBucket(1, '1s', 1)
    const common = { db, limiter: bucket, prefix: `stalls ${++prefix}`, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...common, use: [blocks()], timeout: 100 })
    const call = start(ratelimit).catch((error: unknown) => error)
    await turns()
    // The look takes 60 ms.
    vi.advanceTimersByTime(60)
    gates.shift()?.()
    await turns(20)
    expect(gates).toHaveLength(1)
    vi.advanceTimersByTime(40)
    const first = await Promise.race([call, turns(20).then(() => 'still waits')])
    expect(first).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    for (const open of gates) open()
  })

  test('a statement that gives back and never ends keeps no slot', async () => {
    const gates: (() => void)[] = []
    const { db } = watch(database.db, () => new Promise<void>((resolve) => gates.push(resolve)))
    const common = { db, limiter, prefix: `stalls ${++prefix}`, cleanupProbability: 0, connections: 1 }
    const ratelimit = new Ratelimit({ ...common, timeout: 100 })
    await new Ratelimit({ ...common, db: database.db }).limit('key')
    const late = ratelimit.blockUntilReady('key', 1000).catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await late).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    gates.shift()?.()
    while (gates.length < 1) await turns()
    vi.advanceTimersByTime(59_000)
    const behind = ratelimit.limit('key').catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await behind).toMatchObject({ code: 'TIMEOUT' })
    vi.advanceTimersByTime(1000)
    const next = ratelimit.limit('other')
    while (gates.length < 2) await turns()
    gates[1]?.()
    // The statement that makes the row.
    while (gates.length < 3) await turns()
    for (const open of gates) open()
    expect(await next).toMatchObject({ success: true })
  })

  test('a call that times out before it is sent is not charged', async () => {
    const { ratelimit, open } = stalling({ timeout: 100 })
    const first = ratelimit.limit('other').catch((error: unknown) => error)
    await turns()
    const second = ratelimit.limit('key').catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await first).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect(await second).toMatchObject({ code: 'TIMEOUT' })
    open()
    await turns(20)
    vi.useRealTimers()
    expect(await used(ratelimit)).toBe(0)
    expect(await used(ratelimit, 'other')).toBe(1)
  })

  test('a call that times out behind another of its key is not charged, and sends no statement', async () => {
    const { ratelimit, open, statements } = stalling({ timeout: 100 })
    const first = ratelimit.limit('key', { rate: 2 }).catch((error: unknown) => error)
    await turns()
    const others = [1, 1, 3].map((rate) => ratelimit.limit('key', { rate }).catch((error: unknown) => error))
    await turns()
    vi.advanceTimersByTime(100)
    expect(await first).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    for (const other of others) expect(await other).toMatchObject({ code: 'TIMEOUT' })
    open()
    await turns(20)
    // Taking finds no row, and making it is the second.
    expect(statements).toHaveLength(2)
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 7 })
    vi.useRealTimers()
    expect(await used(ratelimit)).toBe(3)
  })

  test('a call still waits one millisecond before its timeout', async () => {
    const { ratelimit, open } = stalling({ timeout: 100 })
    const answer = ratelimit.limit('key')
    await turns()
    vi.advanceTimersByTime(99)
    open()
    expect(await answer).toMatchObject({ success: true })
    expect(ownTimers()).toEqual([])
  })

  test.each([false, '365d'] as const)(
    'a time that is too long for a timer never ends it: %s',
    async (timeout) => {
      const { ratelimit, open } = stalling({ timeout })
      const waiting = ratelimit.blockUntilReady('key', '365d')
      await turns()
      expect(ownTimers()).toEqual([])
      open()
      expect(await waiting).toMatchObject({ success: true })
    },
  )

  test('a look is never charged', async () => {
    const { ratelimit } = stalling({ timeout: 100 })
    const look = ratelimit.getRemaining('key').catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await look).toMatchObject({ code: 'TIMEOUT' })
  })

  test('calls that share a place are cancelled one by one', async () => {
    const { ratelimit, open } = stalling()
    const patient = ratelimit.limit('other')
    await turns()
    const hasty = new AbortController()
    const aborted = ratelimit
      .blockUntilReady('key', 0, { signal: hasty.signal })
      .catch((error: unknown) => error)
    const stays = ratelimit.limit('key')
    await turns()
    hasty.abort(new Error('enough'))
    expect(await aborted).toMatchObject({ message: 'enough' })
    open()
    expect(await stays).toMatchObject({ success: true, remaining: 9 })
    await patient
    vi.useRealTimers()
    expect(await used(ratelimit)).toBe(1)
  })
})

describe('limitAll and resets', () => {
  test('limitAll ends by the timeout, and may have been charged once it was sent', async () => {
    const { ratelimit, open } = stalling({ timeout: 100 })
    const all = limitAll([{ ratelimit, key: 'key' }]).catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await all).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    open()
    await turns(50)
    vi.useRealTimers()
    expect(await used(ratelimit)).toBe(0)
  })

  test('limitAll uses the shortest timeout of its limiters', async () => {
    const { db, ratelimit, open } = stalling({ timeout: '1m' })
    const hasty = new Ratelimit({ db, limiter, prefix: `hasty ${++prefix}`, timeout: 100 })
    const requests = [ratelimit, hasty].map((one) => ({ ratelimit: one, key: 'key' }))
    const all = limitAll(requests).catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    await turns()
    expect(ownTimers()).toEqual([])
    expect(await all).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    open()
    await turns(50)
  })

  test('spend cannot have charged while it makes rows, and may have charged after that', async () => {
    for (const [stalls, code, spent] of [
      ['insert into', 'TIMEOUT', 0],
      ['for update', 'OUTCOME_UNKNOWN', 4],
    ] as const) {
      let open: (() => void) | undefined
      const { db } = watch(database.db, (text) => {
        if (!text.includes(stalls)) return undefined
        return new Promise<void>((resolve) => {
          open = resolve
        })
      })
      const ratelimit = new Ratelimit({ db, limiter, prefix: `spends ${++prefix}`, timeout: 100 })
      const plain = new Ratelimit({ db: database.db, limiter, prefix: ratelimit.prefix })
      if (spent > 0) await plain.limit('key')
      const ends = spend([{ ratelimit, key: 'key' }], { rate: 3 }).catch((error: unknown) => error)
      while (!open) await turns(1)
      vi.advanceTimersByTime(100)
      expect(await ends).toMatchObject({ code })
      open()
      await turns(50)
      vi.useRealTimers()
      await expect.poll(() => used(ratelimit)).toBe(spent)
      fakeTime()
    }
  })

  test('limitAll that starts again after a deadlock has charged nothing until it takes again', async () => {
    let hasLost = false
    let open: (() => void) | undefined
    const { db } = watch(database.db, (text) => {
      if (text.includes('for update') && !hasLost) {
        hasLost = true
        throw Object.assign(new Error('deadlock'), { code: '40P01' })
      }
      if (!hasLost || !text.includes('insert into')) return undefined
      return new Promise<void>((resolve) => {
        open = resolve
      })
    })
    // The row of a bucket that starts with less is inserted before it is charged.
    const filling = Ratelimit.tokenBucket(1, '1m', 5, { initialTokens: 3 })
    const ratelimit = new Ratelimit({ db, limiter: filling, prefix: `lost ${++prefix}`, timeout: 100 })
    const ends = limitAll([{ ratelimit, key: 'key' }]).catch((error: unknown) => error)
    while (!open) {
      await turns(1)
      // It waits a moment before it begins again.
      if (hasLost) vi.advanceTimersByTime(1)
    }
    vi.advanceTimersByTime(100)
    expect(await ends).toMatchObject({ code: 'TIMEOUT' })
    open()
    await turns(50)
  })

  /** Calls of one limit for each of the keys, which share a statement. */
  function allOf(ratelimit: Ratelimit, keys: number, rate = 1): Promise<unknown>[] {
    return Array.from({ length: keys }, (_, i) =>
      limitAll([{ ratelimit, key: `key ${i}`, rate }]).catch((error: unknown) => error),
    )
  }

  test('lists that time out before they are sent are not charged, and are no sign of an outage', async () => {
    let waiting = 0
    const { db } = watch(database.db, (text) => {
      if (!text.includes('for update') || text.includes('skip locked')) return undefined
      waiting++
      return new Promise(() => {})
    })
    const ratelimit = new Ratelimit({ db, limiter, prefix: `own place ${++prefix}`, timeout: 100 })
    // For a refund no row is made, and only a statement that waits shows whether there is one.
    const ends = allOf(ratelimit, 6, -1)
    while (waiting < 4) await turns(1)
    vi.advanceTimersByTime(100)
    const [sent, waits] = [{ code: 'OUTCOME_UNKNOWN' }, { code: 'TIMEOUT' }].map((each) =>
      expect.objectContaining({ ...each, contended: true }),
    )
    expect(await Promise.all(ends)).toEqual([sent, sent, sent, sent, waits, waits])
  })

  test('a shared statement of lists that times out counts as one failure', async () => {
    const { ratelimit, open } = stalling({ timeout: 100 })
    const plain = new Ratelimit({ db: database.db, limiter, prefix: ratelimit.prefix })
    for (let i = 0; i < 6; i++) await plain.limit(`key ${i}`)
    const ends = allOf(ratelimit, 6)
    await turns()
    vi.advanceTimersByTime(100)
    for (const error of await Promise.all(ends)) expect(error).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    // After five failures only one of them would be sent.
    const next = ['key 0', 'key 1'].map((key) => limitAll([{ ratelimit, key }]))
    open()
    for (const answer of await Promise.all(next)) expect(answer).toMatchObject({ success: true })
  })

  test('a reset may have happened', async () => {
    const { ratelimit } = stalling({ timeout: 100 })
    const reset = ratelimit.resetUsedTokens('key').catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await reset).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  })

  test.runIf(isGate)('no more than 10,000 wait at once', async () => {
    const { ratelimit } = stalling()
    for (const call of [
      (key: string) => ratelimit.resetUsedTokens(key),
      (key: string) => limitAll([{ ratelimit, key }]),
      (key: string) => ratelimit.getRemaining(key),
    ]) {
      const refused: unknown[] = []
      for (let i = 0; i < 10_050; i++) call(`key ${i % 20}`).catch((error: unknown) => refused.push(error))
      await turns()
      expect(refused.length).toBeGreaterThan(0)
      for (const error of refused) expect(error).toMatchObject({ code: 'OVERLOADED', contended: false })
    }
  })

  test('a call that has ended leaves no timer', async () => {
    const { ratelimit, open } = stalling({ timeout: 100 })
    open()
    expect(await limitAll([{ ratelimit, key: 'key' }])).toMatchObject({ success: true })
    await ratelimit.getRemainingAll(['key'])
    await ratelimit.resetUsedTokens('key')
    expect(ownTimers()).toEqual([])
  })

  test.runIf(isGate)('a call that has ended makes room for another, however many there were', async () => {
    const missing = Object.assign(new Error('no table'), { code: '42P01' })
    const { db } = watch(database.db, () => Promise.reject(missing))
    const ratelimit = new Ratelimit({ db, limiter, prefix: 'room' })
    const codes = new Set<string>()
    for (let i = 0; i < 10_001; i++) {
      await ratelimit.getRemainingAll(['key']).catch(({ code }: RatelimitError) => codes.add(code))
    }
    expect([...codes]).toEqual(['MISSING_TABLE'])
  })

  test('limitAll answers by onError if all of its limiters do', async () => {
    const away = () => Promise.reject(new RatelimitError('UNREACHABLE', 'away'))
    const { db } = watch(database.db, away)
    const on = (onError: 'throw' | 'allow' | 'deny') =>
      new Ratelimit({ db, limiter, prefix: onError, onError } as RatelimitConfig)
    const all = (...policies: ('throw' | 'allow' | 'deny')[]) =>
      limitAll(policies.map((onError) => ({ ratelimit: on(onError), key: 'key' })))
    expect(await all('allow', 'allow')).toMatchObject({ success: true, retryAfter: 0 })
    expect(await all('allow', 'deny')).toMatchObject({
      success: false,
      results: [
        { success: true, degraded: true },
        { success: false, degraded: true },
      ],
    })
    await expect(all('allow', 'throw')).rejects.toMatchObject({ code: 'UNREACHABLE' })
  })

  test('limitAll throws in a transaction, or if one of its limiters throws, without a call of onDegraded', async () => {
    const away = () => Promise.reject(new RatelimitError('UNREACHABLE', 'away'))
    const { db } = watch(database.db, away)
    const onDegraded = vi.fn()
    const on = (prefix: string, own: Partial<RatelimitConfig>) => ({
      ratelimit: new Ratelimit({ db, limiter, prefix, ...own } as RatelimitConfig),
      key: 'key',
    })
    const allows = on('allows', { onError: 'allow', onDegraded })
    const throws = on('throws', {})
    await expect(limitAll([allows, throws])).rejects.toMatchObject({ code: 'UNREACHABLE' })
    await database.db.transaction(async (tx) => {
      const inside = limitAll([allows], { tx: watch(tx, away).db })
      await expect(inside).rejects.toMatchObject({ code: 'UNREACHABLE' })
    })
    expect(onDegraded).not.toHaveBeenCalled()
  })
})

describe('blockUntilReady ends while a check is under way', () => {
  test('by its timeout, and gives back a late grant', async () => {
    const { ratelimit, open } = stalling()
    const waiting = ratelimit.blockUntilReady('key', 100).catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await waiting).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    open()
    await turns(50)
    vi.useRealTimers()
    await expect.poll(() => used(ratelimit)).toBe(0)
  })

  test('by its signal, and gives back a late grant', async () => {
    const { ratelimit, open, statements } = stalling()
    const controller = new AbortController()
    const { signal } = controller
    const waiting = ratelimit.blockUntilReady('key', '1m', { signal }).catch((error: unknown) => error)
    await turns()
    controller.abort(new Error('enough'))
    expect(await waiting).toMatchObject({ message: 'enough' })
    expect(ownTimers()).toEqual([])
    open()
    await turns(50)
    vi.useRealTimers()
    await expect.poll(() => used(ratelimit)).toBe(0)
    // It was charged and given back: the row is there.
    expect(statements.length).toBeGreaterThan(2)
  })

  test('and gives nothing back after a late denial', async () => {
    const work: Promise<unknown>[] = []
    const { ratelimit, open, statements } = stalling({ waitUntil: (promise) => work.push(promise) })
    // It has a row, all of which is used.
    const { prefix } = ratelimit
    await new Ratelimit({ db: database.db, limiter, prefix, cleanupProbability: 0 }).limit('key', {
      rate: 10,
    })
    const waiting = ratelimit.blockUntilReady('key', 100).catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await waiting).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    open()
    vi.useRealTimers()
    await Promise.all(work)
    expect(statements).toHaveLength(1)
    expect(await used(ratelimit)).toBe(10)
  })

  test('and gives nothing back to the next window', async () => {
    const work: Promise<unknown>[] = []
    let nowMs = 0
    const common = {
      limiter,
      prefix: `waits ${++prefix}`,
      clock: () => new Date(nowMs),
      cleanupProbability: 0,
    }
    const other = new Ratelimit({ ...common, db: database.db })
    await other.limit('key')
    let answer = () => {}
    const sent = vi
      .fn()
      .mockImplementationOnce(() => new Promise<void>((resolve) => (answer = resolve)))
      // Before it is given back, somebody else opens the next window.
      .mockImplementationOnce(() => other.limit('key', { rate: 3 }))
    const waitUntil = (promise: Promise<unknown>) => work.push(promise)
    const ratelimit = new Ratelimit({ ...common, db: watch(database.db, sent).db, waitUntil })
    const waiting = ratelimit.blockUntilReady('key', 100).catch((error: unknown) => error)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await waiting).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    nowMs = 3_600_000
    answer()
    vi.useRealTimers()
    await Promise.all(work)
    expect(sent).toHaveBeenCalledTimes(2)
    expect(await other.getRemaining('key')).toMatchObject({ used: 3 })
  })

  test.each([
    { onError: 'allow', success: true, charged: 1 },
    { onError: 'deny', success: false, charged: 0 },
  ] as const)('and a late grant pays for a call that passed: $onError', async (expected) => {
    const { onError, success, charged } = expected
    const work: Promise<unknown>[] = []
    const { ratelimit, open } = stalling({ onError, waitUntil: (promise) => work.push(promise) })
    const waiting = ratelimit.blockUntilReady('key', 100)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await waiting).toMatchObject({ success, degraded: true })
    open()
    vi.useRealTimers()
    await Promise.all(work)
    expect(await used(ratelimit)).toBe(charged)
  })

  test.each(['throw', 'allow'] as const)('by its signal, whatever the reason is: %s', async (onError) => {
    const { ratelimit } = stalling({ onError })
    const controller = new AbortController()
    const { signal } = controller
    const waiting = ratelimit.blockUntilReady('key', '1m', { signal }).catch((error: unknown) => error)
    await turns()
    const reason = new RatelimitError('UNREACHABLE', 'The other database is away.')
    controller.abort(reason)
    expect(await waiting).toBe(reason)
  })

  test('by its signal, though the code for denials is still loading', async () => {
    const { ratelimit, statements } = stalling({ inMemoryBlock: true })
    const controller = new AbortController()
    const { signal } = controller
    vi.spyOn(signal, 'throwIfAborted').mockImplementationOnce(() => {
      queueMicrotask(() => controller.abort(new Error('enough')))
    })
    const waiting = ratelimit.blockUntilReady('key', '1m', { signal })
    await expect(waiting).rejects.toThrow('enough')
    expect(statements).toEqual([])
  })
})

describe('the end of a wait', () => {
  /** A limiter that answers the first check, and stalls at the next ones. */
  async function denied(config: Partial<RatelimitConfig> = {}) {
    const answers = { open: true }
    let now = 0
    const { db } = watch(database.db, () => (answers.open ? undefined : new Promise(() => {})))
    const ratelimit = new Ratelimit({
      ...{ db, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: `waits ${++prefix}`, cleanupProbability: 0 },
      ...{ clock: () => new Date(now), connections: 1 },
      ...config,
    } as RatelimitConfig)
    await ratelimit.limit('key')
    now = 3_600_000 - 50
    return { ratelimit, answers }
  }

  test('leaves the denial before it, whatever onError says', async () => {
    const onDegraded = vi.fn()
    const { ratelimit, answers } = await denied({ onError: 'allow', onDegraded })
    const waiting = ratelimit.blockUntilReady('key', 60)
    await turns(50)
    answers.open = false
    vi.advanceTimersByTime(50)
    await turns()
    vi.advanceTimersByTime(10)
    expect(await waiting).toMatchObject({ success: false, retryAfter: 50 })
    expect(onDegraded).not.toHaveBeenCalled()
  })

  test('hides no error behind the denial before it', async () => {
    let isAway = false
    const { db } = watch(database.db, () => {
      if (isAway) throw new RatelimitError('UNREACHABLE', 'away')
    })
    const { ratelimit } = await denied({ db })
    const waiting = ratelimit.blockUntilReady('key', 60).catch((error: unknown) => error)
    await turns(50)
    isAway = true
    vi.advanceTimersByTime(50)
    expect(await waiting).toMatchObject({ code: 'UNREACHABLE' })
  })

  test('says nothing about the database', async () => {
    const { ratelimit, open } = stalling({ connections: 5 })
    const ends = Array.from({ length: 5 }, (_, i) => ratelimit.blockUntilReady(`key ${i}`, 1))
    const ended = Promise.allSettled(ends)
    await turns()
    vi.advanceTimersByTime(1)
    await ended
    const answers = Promise.all(['a', 'b'].map((key) => ratelimit.limit(key)))
    open()
    expect(await answers).toMatchObject([{ success: true }, { success: true }])
  })
})

describe('onError', () => {
  const away = () => new RatelimitError('UNREACHABLE', 'away')
  const failing = (error: () => Error, config: Partial<RatelimitConfig>) => {
    const { db, statements } = watch(database.db, () => {
      throw error()
    })
    const common = { db, limiter, prefix: `fails ${++prefix}`, cleanupProbability: 0 }
    return { ratelimit: new Ratelimit({ ...common, ...config } as RatelimitConfig), statements }
  }

  test("'allow' and 'deny' answer, say so, and hand the error on", async () => {
    const onDegraded = vi.fn()
    const { ratelimit: allowing } = failing(away, { onError: 'allow', onDegraded })
    expect(await allowing.limit('key')).toMatchObject({ success: true, degraded: true, limit: 10 })
    const { ratelimit: denying } = failing(away, { onError: 'deny', onDegraded })
    expect(await denying.limit('key')).toMatchObject({ success: false, degraded: true, retryAfter: 1000 })
    expect(await denying.limit('key', { rate: -1, start: 0 })).toMatchObject({ success: false })
    expect(onDegraded.mock.calls.map(([error]) => error)).toMatchObject([
      { code: 'UNREACHABLE' },
      { code: 'UNREACHABLE' },
      { code: 'UNREACHABLE' },
    ])
  })

  test('also answers a call that finds no room', async () => {
    const { ratelimit } = stalling({ onError: 'allow' })
    const calls = Array.from({ length: 10_002 }, (_, i) => ratelimit.limit(`key ${i}`))
    expect(await Promise.race(calls)).toMatchObject({ success: true, degraded: true })
  })

  test.each(['allow', 'deny'] as const)('denies a call that waited for its own key: %s', async (onError) => {
    const { ratelimit } = stalling({ onError, timeout: 100 })
    const first = ratelimit.limit('key')
    await turns()
    const behind = [ratelimit.limit('key'), ratelimit.limit('key', { rate: 2 })]
    await turns()
    vi.advanceTimersByTime(100)
    const denied = { success: false, degraded: true, retryAfter: 1000 }
    expect(await Promise.all(behind)).toMatchObject([denied, denied])
    expect(await first).toMatchObject({ success: onError === 'allow', degraded: true })
  })

  test("'allow' denies a call that is refused because of its own key", async () => {
    const { ratelimit } = stalling({ onError: 'allow' })
    const calls = Array.from({ length: 1_002 }, () => ratelimit.limit('key'))
    expect(await Promise.race(calls)).toMatchObject({ success: false, degraded: true })
    const all = Array.from({ length: 1_002 }, () => limitAll([{ ratelimit, key: 'other' }]))
    expect(await Promise.race(all)).toMatchObject({ success: false, results: [{ degraded: true }] })
  })

  test('a dry run lets it pass', async () => {
    const { ratelimit } = stalling({ onError: 'allow', timeout: 100, dryRun: true })
    const calls = [ratelimit.limit('key'), ratelimit.limit('key')]
    await turns()
    vi.advanceTimersByTime(100)
    expect(await calls[1]).toMatchObject({ success: true, degraded: true, wouldDeny: { degraded: true } })
  })

  test('a clock that fails hides no outage', async () => {
    const onDegraded = vi.fn()
    let isAway = false
    const clock = () => {
      if (isAway) throw new Error('no time')
      return new Date(0)
    }
    const error = () => {
      isAway = true
      return away()
    }
    const { ratelimit } = failing(error, { onError: 'deny', onDegraded, clock })
    expect(await ratelimit.limit('key')).toMatchObject({ degraded: true, reset: expect.any(Number) })
    expect(onDegraded.mock.calls).toMatchObject([[{ code: 'UNREACHABLE' }]])
  })

  test('credits have no limit during an outage', async () => {
    const { db } = watch(database.db, () => {
      throw away()
    })
    const credits = new Credits({ db, prefix: 'credits away', onError: 'allow', cleanupProbability: 0 })
    expect(await credits.limit('key')).toMatchObject({ limit: Number.POSITIVE_INFINITY, degraded: true })
  })

  test.each(['throws', 'rejects'])('the answer stands if onDegraded %s', async (fails) => {
    const unhandled: unknown[] = []
    const listen = (error: unknown) => unhandled.push(error)
    process.on('unhandledRejection', listen)
    const told: RatelimitError[] = []
    // A spy would handle the rejection.
    const onDegraded = (error: RatelimitError) => {
      told.push(error)
      const broken = new Error('the logger is broken')
      if (fails === 'throws') throw broken
      return Promise.reject(broken)
    }
    const { ratelimit } = failing(away, { onError: 'allow', onDegraded })
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, degraded: true })
    const all = await limitAll([{ ratelimit, key: 'key' }])
    expect(all).toMatchObject({ success: true, results: [{ degraded: true }] })
    await turns()
    process.off('unhandledRejection', listen)
    expect(told).toMatchObject([{ code: 'UNREACHABLE' }, { code: 'UNREACHABLE' }])
    expect(unhandled).toEqual([])
  })

  test('limitAll calls each onDegraded once', async () => {
    const [onDegraded, other] = [vi.fn(), vi.fn()]
    const { db } = watch(database.db, () => {
      throw away()
    })
    const on = (config: Partial<RatelimitConfig>) =>
      new Ratelimit({
        db,
        limiter,
        prefix: `fails ${++prefix}`,
        onError: 'allow',
        ...config,
      } as RatelimitConfig)
    const [first, second] = [on({ onDegraded }), on({ onDegraded })]
    const requests = [first, first, second, on({}), on({ onDegraded: other })]
    await limitAll(requests.map((ratelimit, i) => ({ ratelimit, key: `key ${i}` })))
    expect(onDegraded).toHaveBeenCalledTimes(1)
    expect(other).toHaveBeenCalledTimes(1)
  })

  test.each([
    ['22021', 'DATABASE'],
    ['42P01', 'MISSING_TABLE'],
    ['42501', 'DATABASE'],
  ])('throws an error of the setup: %s', async (sqlState, code) => {
    const refused = () => Object.assign(new Error('refused'), { code: sqlState })
    const { ratelimit } = failing(refused, { onError: 'allow' })
    await expect(ratelimit.limit('key')).rejects.toMatchObject({ code })
  })

  test.each(['53300', '57014', '57P03', '55P03', '25006', '25P03', '25P04', '58030'])(
    'answers an outage: %s',
    async (sqlState) => {
      const refused = () => Object.assign(new Error('refused'), { code: sqlState })
      const { ratelimit } = failing(refused, { onError: 'allow' })
      expect(await ratelimit.limit('key')).toMatchObject({ success: true, degraded: true })
    },
  )

  test('answers an outage: the server is a standby, and the table is UNLOGGED', async () => {
    const refused = (routine: string) => () => Object.assign(new Error('refused'), { code: '0A000', routine })
    const ofStandby = failing(refused('get_relation_info'), { onError: 'allow' })
    expect(await ofStandby.ratelimit.limit('key')).toMatchObject({ success: true, degraded: true })
    const ofCitus = failing(refused('DeferErrorIfQueryNotSupported'), { onError: 'allow' })
    await expect(ofCitus.ratelimit.limit('key')).rejects.toMatchObject({ code: 'DATABASE' })
  })

  test('never answers inside a transaction of the caller', async () => {
    const { ratelimit } = failing(away, { onError: 'allow' })
    await database.db.transaction(async (tx) => {
      const { db } = watch(tx, () => {
        throw away()
      })
      await expect(ratelimit.limit('key', { tx: db })).rejects.toMatchObject({ code: 'UNREACHABLE' })
    })
  })

  test('a dry run denies nothing', async () => {
    const { ratelimit } = failing(away, { onError: 'deny', dryRun: true })
    const answer = await ratelimit.limit('key')
    expect(answer).toMatchObject({ success: true, retryAfter: 0, degraded: true })
    expect(answer).toMatchObject({ wouldDeny: { success: false, retryAfter: 1000, degraded: true } })
  })

  test('a reservation that may not have been charged gives nothing back', async () => {
    let isAway = false
    const { db } = watch(database.db, () => {
      if (isAway) throw new Error('broken')
    })
    const name = `fails ${++prefix}`
    const ratelimit = new Ratelimit({ db, limiter, prefix: name, cleanupProbability: 0, onError: 'allow' })
    await ratelimit.limit('key', { rate: 10 })
    isAway = true
    const reserved = await ratelimit.reserve('key', { rate: 4 })
    if (!reserved.success) throw new Error('It was denied.')
    isAway = false
    await reserved.release()
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 10 })
  })

  test('a reservation that was allowed in an outage charges what it costs when it is committed', async () => {
    let isAway = true
    const { db } = watch(database.db, () => {
      if (isAway) throw away()
    })
    const name = `fails ${++prefix}`
    const ratelimit = new Ratelimit({ db, limiter, prefix: name, cleanupProbability: 0, onError: 'allow' })
    const reserved = await ratelimit.reserve('key', { rate: 4 })
    if (!reserved.success) throw new Error('It was denied.')
    await expect(reserved.commit(3)).rejects.toMatchObject({ code: 'UNREACHABLE' })
    isAway = false
    await reserved.commit(3)
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 3 })
  })
})

describe('a database that fails for a while', () => {
  test('is tried by one call at a time until its first answer', async () => {
    let fails = true
    const gates: (() => void)[] = []
    const { db, statements } = watch(database.db, async () => {
      if (fails && statements.length > 5) await new Promise<void>((resolve) => gates.push(resolve))
      if (fails) throw new RatelimitError('UNREACHABLE', 'away')
    })
    const ratelimit = new Ratelimit({ db, limiter, prefix: `away ${++prefix}`, cleanupProbability: 0 })
    for (let i = 0; i < 5; i++) await expect(ratelimit.limit('key')).rejects.toThrow('away')
    expect(statements).toHaveLength(5)

    const trial = ratelimit.limit('key').catch((error: unknown) => error)
    await turns()
    await expect(ratelimit.limit('other')).rejects.toMatchObject({ code: 'UNREACHABLE' })
    expect(statements).toHaveLength(6)

    // A trial that has no answer for a second may never get one.
    vi.advanceTimersByTime(1000)
    const second = ratelimit.limit('another')
    await turns()
    expect(statements).toHaveLength(7)
    fails = false
    for (const gate of gates) gate()
    expect(await second).toMatchObject({ success: true })
    await trial
    const answers = await Promise.all(['a', 'b', 'c'].map((key) => ratelimit.limit(key)))
    expect(answers.every(({ success }) => success)).toBe(true)
  })

  test('a refusal is an answer', async () => {
    let isAway = true
    const { db } = watch(database.db, () => {
      throw isAway ? new RatelimitError('UNREACHABLE', 'away') : Object.assign(new Error(), { code: '42P01' })
    })
    const config = { db, limiter, prefix: `back ${++prefix}`, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...config, onError: 'allow' } as RatelimitConfig)
    for (let i = 0; i < 5; i++) expect(await ratelimit.limit('key')).toMatchObject({ degraded: true })
    isAway = false
    const failed = await Promise.allSettled([ratelimit.limit('key'), ratelimit.limit('key')])
    expect(failed).toMatchObject([{ reason: { code: 'MISSING_TABLE' } }, { value: { degraded: true } }])
    // The trial has shown that the database is there.
    const again = await Promise.allSettled([ratelimit.limit('a'), ratelimit.limit('b')])
    const missing = { reason: { code: 'MISSING_TABLE' } }
    expect(again).toMatchObject([missing, missing])
  })

  test('limitAll and resets count, and are answered without it', async () => {
    let answering = Promise.resolve()
    const { db, statements } = watch(database.db, async () => {
      await answering
      throw new RatelimitError('UNREACHABLE', 'away')
    })
    const config = { db, limiter, prefix: `all ${++prefix}`, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...config, onError: 'allow' } as RatelimitConfig)
    const all = () => limitAll([{ ratelimit, key: 'key' }])
    for (let i = 0; i < 4; i++) expect(await all()).toMatchObject({ success: true })
    await expect(ratelimit.resetUsedTokens('key')).rejects.toThrow('away')
    expect(statements).toHaveLength(5)

    let answer = () => {}
    answering = new Promise((resolve) => {
      answer = resolve
    })
    const trial = ratelimit.resetUsedTokens('key')
    trial.catch(() => {})
    await vi.waitFor(() => expect(statements).toHaveLength(6), PATIENTLY)
    await expect(ratelimit.resetUsedTokens('key')).rejects.toMatchObject({ code: 'UNREACHABLE' })
    expect(await all()).toMatchObject({ success: true })
    expect(await ratelimit.limit('key')).toMatchObject({ degraded: true })
    answer()
    await expect(trial).rejects.toThrow('away')
    expect(statements).toHaveLength(6)
  })

  test('a call that finds no room leaves no timer that would count as a failure', async () => {
    const bucket = Ratelimit.tokenBucket(10, '1h', 10)
    const { ratelimit, open } = stalling({ timeout: 100, limiter: bucket })
    const first = ratelimit.limit('key')
    await turns()
    const calls = Array.from({ length: 10_000 }, (_, i) => ratelimit.limit(`key ${i % 20}`, { rate: 0.001 }))
    await turns()
    await expect(ratelimit.limit('other')).rejects.toMatchObject({ code: 'OVERLOADED' })
    // One for all of them.
    expect(ownTimers()).toHaveLength(1)
    open()
    await Promise.all([first, ...calls])
    expect(ownTimers()).toEqual([])
  })

  test('is also tried by one call at a time after five looks without an answer in time', async () => {
    const { ratelimit } = stalling({ timeout: 100, connections: 4 })
    const codes: unknown[] = []
    for (let i = 0; i < 7; i++) {
      ratelimit.getRemaining('key').catch(({ code }: RatelimitError) => codes.push(code))
      await turns()
      if (i < 5) vi.advanceTimersByTime(100)
      await turns()
    }
    expect(codes).toEqual([...Array(5).fill('TIMEOUT'), 'UNREACHABLE'])
  })

  describe('a database that is silent', () => {
    const silence = () => new Promise<never>(() => {})

    /** Calls, each after the time of the one before is over. */
    async function callFor(times: number, call: () => Promise<unknown>) {
      const calls: Promise<PromiseSettledResult<unknown>[]>[] = []
      for (let i = 0; i < times; i++) {
        calls.push(Promise.allSettled([call()]))
        await turns()
        vi.advanceTimersByTime(100)
      }
      return (await Promise.all(calls)).flat()
    }

    const ways: Record<string, (ratelimit: Ratelimit) => Promise<unknown>> = {
      limitAll: (ratelimit) => limitAll([{ ratelimit, key: 'key' }]),
      reserveAll: (ratelimit) => reserveAll([{ ratelimit, key: 'key' }]),
      spend: (ratelimit) => spend([{ ratelimit, key: 'key' }], { rate: 1 }),
      getRemainingAll: (ratelimit) => ratelimit.getRemainingAll(['key', 'other']),
      cleanup: (ratelimit) => ratelimit.cleanup(),
    }

    test.each(Object.entries(ways))('to %s is tried by one call at a time', async (_, way) => {
      const { db, statements } = watch(database.db, silence)
      const ratelimit = new Ratelimit({ db, limiter, prefix: `silent ${++prefix}`, timeout: 100 })
      await callFor(5, () => way(ratelimit))
      expect(statements).toHaveLength(5)
      const calls = [way(ratelimit), way(ratelimit), ratelimit.limit('key')]
      const codes = calls.map((call) => call.catch(({ code }: RatelimitError) => code))
      await callFor(1, () => Promise.all(codes))
      expect((await Promise.all(codes)).filter((code) => code === 'UNREACHABLE')).toHaveLength(2)
      expect(statements).toHaveLength(6)
    })

    test('to limitAll: onError answers without waiting', async () => {
      const common = { db: watch(database.db, silence).db, limiter, prefix: `silent ${++prefix}` }
      const onDegraded = vi.fn()
      const ratelimit = new Ratelimit({ ...common, timeout: 100, onError: 'allow', onDegraded })
      const all = () => limitAll([{ ratelimit, key: 'key' }])
      await callFor(5, all)
      const [both] = await callFor(1, () => Promise.all([all(), all()]))
      const degraded = { success: true, results: [{ degraded: true }] }
      expect(both).toMatchObject({ value: [degraded, degraded] })
      const codes = onDegraded.mock.calls.map(([{ code }]) => code)
      // The statements that were given up keep their places for a while.
      expect(codes).toEqual([...Array(5).fill('OUTCOME_UNKNOWN'), 'UNREACHABLE', 'TIMEOUT'])
    })

    test('is not a database whose rows others hold', async () => {
      let stalls = true
      const waits = (text: string) => !text.includes('skip locked')
      const { db } = watch(database.db, (text) => (stalls && waits(text) ? silence() : undefined))
      const ratelimit = new Ratelimit({ db, limiter, prefix: `held ${++prefix}`, timeout: 100 })
      await callFor(5, () => ratelimit.resetUsedTokens('key'))
      // Only a statement that waits shows whether there is a row to give back to.
      await callFor(5, () => limitAll([{ ratelimit, key: 'key', rate: -1 }]))
      stalls = false
      const answers = Promise.all(['a', 'b'].map((key) => ratelimit.limit(key)))
      expect(await answers).toMatchObject([{ success: true }, { success: true }])
    })

    test('counts as answering after a late answer', async () => {
      const gates: (() => void)[] = []
      let isLate = true
      const { db } = watch(database.db, () => isLate && new Promise<void>((resolve) => gates.push(resolve)))
      const ratelimit = new Ratelimit({ db, limiter, prefix: `late ${++prefix}`, timeout: 100 })
      await callFor(5, () => limitAll([{ ratelimit, key: 'key' }]))
      isLate = false
      for (const open of gates) open()
      await turns(20)
      const answers = Promise.all(['a', 'b'].map((key) => ratelimit.limit(key)))
      expect(await answers).toMatchObject([{ success: true }, { success: true }])
    })
  })

  test('calls of one statement that time out at different times count as one failure, and calls behind it do not count', async () => {
    const { ratelimit } = stalling({ timeout: 100, connections: 4 })
    const codes: unknown[] = []
    for (let i = 0; i < 12; i++) {
      ratelimit.limit('key', { rate: 1 + (i % 5) }).catch(({ code }: RatelimitError) => codes.push(code))
      if (i % 6 === 5) await turns()
      vi.advanceTimersByTime(10)
    }
    vi.advanceTimersByTime(100)
    await turns()
    expect(codes).toHaveLength(12)
    expect(codes).not.toContain('UNREACHABLE')
    const more = ratelimit.limit('key').catch(({ code }: RatelimitError) => code)
    await turns()
    vi.advanceTimersByTime(100)
    expect(await more).toBe('OUTCOME_UNKNOWN')
  })

  test('the failed calls of one statement count once', async () => {
    const { db, statements } = watch(database.db, () => {
      throw new RatelimitError('UNREACHABLE', 'away')
    })
    const ratelimit = new Ratelimit({ db, limiter, prefix: `once ${++prefix}`, cleanupProbability: 0 })
    const keys = Array.from({ length: 40 }, (_, i) => `key ${i}`)
    for (let i = 1; i <= 2; i++) {
      const answers = await Promise.allSettled(keys.map((key) => ratelimit.limit(key)))
      // All were sent, and none was refused at once.
      for (const answer of answers) expect(answer).toMatchObject({ reason: { message: 'away' } })
      expect(statements).toHaveLength(i)
    }
  })
})
