import diagnostics from 'node:diagnostics_channel'
import { usage } from 'drizzle-ratelimit/reports'
import { describe, expect, test, vi } from 'vitest'
import {
  limitAll,
  Ratelimit,
  RatelimitError,
  type StatementMessage,
  type WaitMessage,
} from '../../../src/index.ts'
import { type Lease, Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { fakeTime, ownTimers, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
useFakeTime()
let time = Date.UTC(2026, 0, 1)
const clock = () => new Date(time)

function slots(prefix: string, limit = 2): Semaphore {
  return new Semaphore({ db: database.db, limit, lease: '30s', prefix, clock, cleanupProbability: 0 })
}

/** Resolves when a call of the limiter begins to wait. */
function waitBegins(prefix: string): Promise<void> {
  return new Promise((resolve) => {
    const listen = (message: unknown) => {
      if ((message as WaitMessage).prefix !== prefix) return
      diagnostics.unsubscribe('drizzle-ratelimit:wait', listen)
      resolve()
    }
    diagnostics.subscribe('drizzle-ratelimit:wait', listen)
  })
}

test('at most the limit of leases at once, and the next one after a release', async () => {
  const exports = slots('at most')
  const [one, two] = [allowed(await exports.acquire('org')), allowed(await exports.acquire('org'))]
  expect(await exports.acquire('org')).toMatchObject({ success: false, retryAfter: 30_000 })
  expect(await exports.acquire('another org')).toMatchObject({ success: true })
  expect(await one.release()).toBe(true)
  expect(await exports.acquire('org')).toMatchObject({ success: true })
  expect(await exports.acquire('org')).toMatchObject({ success: false })
  expect(await two.release()).toBe(true)
})

test('a denial writes nothing', async () => {
  const exports = slots('denied', 1)
  await exports.acquire('org')
  const before = await database.rows("select * from rate_limit_durable where prefix = 'denied'")
  expect(before).toHaveLength(1)
  time += 1000
  expect(await exports.acquire('org')).toMatchObject({ success: false, retryAfter: 29_000 })
  expect(await database.rows("select * from rate_limit_durable where prefix = 'denied'")).toEqual(before)
})

test('a lease ends by itself, to the millisecond', async () => {
  const exports = slots('ends', 1)
  await exports.acquire('org')
  time += 29_999
  expect(await exports.acquire('org')).toMatchObject({ success: false, retryAfter: 1 })
  time += 1
  expect(await exports.acquire('org')).toMatchObject({ success: true })
})

test('a late or second release does nothing, and neither does a late extend', async () => {
  const exports = slots('late', 1)
  const first = allowed(await exports.acquire('org'))
  time += 30_000
  const second = allowed(await exports.acquire('org'))
  expect(second.fence).toBeGreaterThan(first.fence)
  expect(await first.extend()).toBe(false)
  expect(first.signal.aborted).toBe(true)
  expect(await first.release()).toBe(false)
  expect(await exports.acquire('org')).toMatchObject({ success: false })
  expect(await second.release()).toBe(true)
  expect(await second.release()).toBe(false)
  expect(await second.extend()).toBe(false)
})

test('extend makes a lease last its length again', async () => {
  const exports = slots('extended', 1)
  const job = allowed(await exports.acquire('org'))
  time += 20_000
  expect(await job.extend()).toBe(true)
  time += 29_999
  expect(await exports.acquire('org')).toMatchObject({ success: false, retryAfter: 1 })
  time += 1
  expect(await exports.acquire('org')).toMatchObject({ success: true })
})

test('the fence grows, also within a millisecond, and after the row was swept', async () => {
  const exports = slots('fences', 1)
  const fences: number[] = []
  for (let i = 0; i < 4; i++) {
    const job = allowed(await exports.acquire('org'))
    fences.push(job.fence)
    await job.release()
  }
  time += 3_600_000 * 2
  expect(await exports.cleanup()).toBe(1)
  fences.push(allowed(await exports.acquire('org')).fence)
  expect(fences).toEqual(fences.toSorted((a, b) => a - b))
  expect(new Set(fences).size).toBe(5)
})

test('a cleanup deletes no slot under a lease', async () => {
  const exports = slots('swept', 1)
  // Just before the hour at which rows expire.
  time = Math.ceil(time / 3_600_000) * 3_600_000 - 1
  const job = allowed(await exports.acquire('org'))
  time += 29_999
  expect(await exports.cleanup()).toBe(0)
  expect(await job.extend()).toBe(true)
  time += 29_999
  expect(await exports.cleanup()).toBe(0)
  time += 3_600_000
  expect(await exports.cleanup()).toBe(1)
})

describe('another limit', () => {
  test('a smaller one counts the leases of all slots', async () => {
    const exports = slots('smaller', 5)
    const jobs: Lease[] = []
    for (let i = 0; i < 5; i++) jobs.push(allowed(await exports.acquire('org')))
    // The slots 1 and 2 become free, but three leases are left.
    for (const job of jobs.slice(0, 2)) await job.release()
    expect(await exports.acquire('org', { limit: 2 })).toMatchObject({ success: false })
    await jobs[2]?.release()
    expect(await exports.acquire('org', { limit: 2 })).toMatchObject({ success: false })
    await jobs[3]?.release()
    expect(await exports.acquire('org', { limit: 2 })).toMatchObject({ success: true })
    expect(await exports.acquire('org', { limit: 2 })).toMatchObject({ success: false })
    expect(await exports.acquire('org')).toMatchObject({ success: true })
  })

  test('0 denies, a thousand fit', async () => {
    const exports = slots('sizes', 0)
    expect(await exports.acquire('org')).toMatchObject({ success: false, retryAfter: Infinity })
    // No wait would help.
    const suspended = exports.acquire('org', { timeout: '1h' })
    expect(await suspended).toMatchObject({ success: false, retryAfter: Infinity })
    expect(await exports.acquire('org', { limit: 1000 })).toMatchObject({ success: true })
  })
})

test('keys that look like slots of another key stay apart', async () => {
  const exports = slots('alike', 1)
  for (const key of ['org', 'org#0001', 'org#0001#0001', 'org#', 'or', 'org%', 'Org']) {
    expect([key, await exports.acquire(key)]).toMatchObject([key, { success: true }])
    expect([key, await exports.acquire(key)]).toMatchObject([key, { success: false }])
  }
})

test('await using releases', async () => {
  const exports = slots('using', 1)
  {
    await using job = await exports.acquire('org')
    expect(job).toMatchObject({ success: true })
    await using denied = await exports.acquire('org')
    expect(denied).toMatchObject({ success: false })
  }
  expect(await exports.acquire('org')).toMatchObject({ success: true })
})

test('a call waits for a slot, and at most until its time is over', async () => {
  const exports = new Semaphore({ db: database.db, limit: 1, lease: '30s', prefix: 'waits' })
  const first = allowed(await exports.acquire('org'))
  // Only time that the test lets pass ends a wait.
  fakeTime()
  const [begins, late] = [waitBegins('waits'), exports.acquire('org', { timeout: 50 })]
  await begins
  const patient = exports.acquire('org', { timeout: '20s' })
  await vi.advanceTimersByTimeAsync(50)
  expect(await late).toMatchObject({ success: false })
  await first.release()
  expect(await patient).toMatchObject({ success: true })
})

test('calls of a process wait in a line, and an aborted one leaves it', async () => {
  const exports = new Semaphore({ db: database.db, limit: 1, lease: '30s', prefix: 'line' })
  const first = allowed(await exports.acquire('org'))
  const order: string[] = []
  const wait = async (name: string, signal?: AbortSignal) => {
    const job = allowed(await exports.acquire('org', { timeout: '20s', signal }))
    order.push(name)
    await job.release()
  }
  const controller = new AbortController()
  const waiting = []
  for (const name of ['one', 'aborted', 'two', 'three']) {
    const joined = waitBegins('line')
    waiting.push(wait(name, name === 'aborted' ? controller.signal : undefined).catch((error) => error))
    // A call joins the line when its first look has found no slot.
    await joined
  }
  controller.abort(new Error('the request is gone'))
  expect(await waiting[1]).toMatchObject({ message: 'the request is gone' })
  await first.release()
  await Promise.all(waiting)
  expect(order).toEqual(['one', 'two', 'three'])
})

test('the signal aborts before the lease ends', async () => {
  fakeTime()
  const exports = new Semaphore({
    ...{ db: database.db, limit: 1, lease: 2000, prefix: 'signal' },
    ...{ clock, cleanupProbability: 0 },
  })
  const pass = async (ms: number) => {
    time += ms
    await vi.advanceTimersByTimeAsync(ms)
  }
  const job = allowed(await exports.acquire('org'))
  await pass(1799)
  expect(job.signal.aborted).toBe(false)
  await pass(1)
  expect(job.signal.reason).toMatchObject({ name: 'RatelimitError', code: 'LEASE_ENDED' })
  await pass(199)
  expect(await exports.acquire('org')).toMatchObject({ success: false, retryAfter: 1 })
  expect(await job.extend()).toBe(false)
  await pass(1)
  expect(await exports.acquire('org')).toMatchObject({ success: true })
})

test('in a transaction the lock is the lease', async () => {
  const exports = slots('joined', 1)
  await database.db.transaction(async (tx) => {
    const job = allowed(await exports.acquire('org', { tx }))
    expect(await job.extend()).toBe(true)
    expect(job.signal.aborted).toBe(false)
    expect(await job.release()).toBe(true)
    expect(await job.release()).toBe(false)
  })
  const job = allowed(await exports.acquire('org'))
  await database.db.transaction(async (tx) => {
    expect(await exports.acquire('org', { tx })).toMatchObject({ success: false })
    expect(await job.release({ tx })).toBe(true)
  })
  expect(await exports.acquire('org')).toMatchObject({ success: true })
})

test('a transaction has one slot of a key', async () => {
  const exports = slots('one slot')
  await database.db.transaction(async (tx) => {
    const [one, two] = [
      allowed(await exports.acquire('org', { tx })),
      allowed(await exports.acquire('org', { tx })),
    ]
    expect(two.fence).toBeGreaterThan(one.fence)
    expect(allowed(await exports.acquire('org', { tx })).fence).toBeGreaterThan(two.fence)
  })
  expect(await database.rows("select key from rate_limit_durable where prefix = 'one slot'")).toHaveLength(1)
})

test('a signal that aborts as the wait begins ends it, behind others too', async () => {
  const exports = slots('aborted at once', 1)
  await exports.acquire('org')
  const waits = waitBegins('aborted at once')
  const ending = new AbortController()
  const first = exports.acquire('org', { timeout: '20s', signal: ending.signal })
  await waits
  const controller = new AbortController()
  const begins = (message: unknown) => {
    if ((message as WaitMessage).prefix === 'aborted at once') controller.abort(new Error('gone'))
  }
  diagnostics.subscribe('drizzle-ratelimit:wait', begins)
  const second = exports.acquire('org', { timeout: '10s', signal: controller.signal })
  await expect(second).rejects.toThrow('gone')
  diagnostics.unsubscribe('drizzle-ratelimit:wait', begins)
  ending.abort(new Error('the end'))
  await expect(first).rejects.toThrow('the end')
})

describe('a database that does not answer', () => {
  /** Slots on a database that does not answer until it is released. */
  function stuck(prefix: string) {
    let release = () => {}
    const answers = new Promise<void>((resolve) => {
      release = resolve
    })
    const { db } = watch(database.db, () => answers)
    const common = { limit: 1, lease: '1h', prefix, cleanupProbability: 0 } as const
    return {
      exports: new Semaphore({ ...common, db }),
      asking: new Semaphore({ ...common, db: database.db }),
      release,
    }
  }

  test('ends no wait: the timeout does, and a slot that comes late is released', async () => {
    const { exports, asking, release } = stuck('stuck')
    await expect(exports.acquire('org', { timeout: 20 })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    release()
    expect(await asking.acquire('org', { timeout: '20s' })).toMatchObject({ success: true })
  })

  test('ends no wait: the signal does', async () => {
    const { exports, asking, release } = stuck('stuck, aborted')
    const controller = new AbortController()
    const waiting = exports.acquire('org', { signal: controller.signal })
    // The signal of another lease has such a reason.
    const reason = new RatelimitError('LEASE_ENDED', 'the request is gone')
    controller.abort(reason)
    await expect(waiting).rejects.toBe(reason)
    release()
    expect(await asking.acquire('org', { timeout: '20s' })).toMatchObject({ success: true })
  })

  test.each([
    ['timeout', () => ({ timeout: 20 })],
    ['signal', () => ({ signal: AbortSignal.timeout(20) })],
  ])(
    'delays no later call of the key: its own %s takes the call out of the queue',
    async (bound, optionsOf) => {
      let isStuck = true
      const { db } = watch(database.db, () => isStuck && new Promise(() => {}))
      const exports = new Semaphore({
        db,
        limit: 1,
        lease: '1h',
        prefix: `stuck by ${bound}`,
        cleanupProbability: 0,
        timeout: false,
      })
      await expect(exports.acquire('org', optionsOf())).rejects.toThrow()
      isStuck = false
      expect(await exports.acquire('org', { timeout: '20s' })).toMatchObject({ success: true })
    },
  )

  test('keeps nothing of calls that were not sent: they charged nothing, and waited for their own key', async () => {
    const { db } = watch(database.db, () => new Promise(() => {}))
    const exports = new Semaphore({
      ...{ db, limit: 1, lease: '1h', prefix: 'given up' },
      ...{ timeout: '10m', cleanupProbability: 0 },
    })
    fakeTime()
    const stuck = exports.acquire('org').catch(({ code }: RatelimitError) => code)
    await vi.advanceTimersByTimeAsync(1)
    const calls = Array.from({ length: 50 }, () => exports.acquire('org', { timeout: 5 }))
    const ended = Promise.allSettled(calls)
    await vi.advanceTimersByTimeAsync(5)
    const reason = expect.objectContaining({ code: 'TIMEOUT', contended: true })
    expect(await ended).toEqual(calls.map(() => ({ status: 'rejected', reason })))
    expect(ownTimers()).toEqual([expect.any(String)])
    await vi.advanceTimersByTimeAsync(600_000)
    expect(await stuck).toBe('OUTCOME_UNKNOWN')
  })

  test('is not asked for each of many keys if it is too slow for all', async () => {
    const slow = Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' })
    const { db, statements } = watch(database.db, () => {
      throw slow
    })
    const exports = new Semaphore({ db, limit: 1, lease: '1h', prefix: 'slow', cleanupProbability: 0 })
    const calls = Array.from({ length: 100 }, (_, i) => exports.acquire(`org ${i}`))
    const outcomes = await Promise.allSettled(calls)
    expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(100)
    // Five for each of the statements that share the calls: two are under way at once.
    expect(statements.length).toBeLessThanOrEqual(10)
  })

  test('fails calls that share a statement with an error of their own each', async () => {
    let isAway = false
    const { db } = watch(database.db, () => {
      if (isAway) throw Object.assign(new Error('away'), { code: 'ECONNREFUSED' })
    })
    const exports = new Semaphore({ db, limit: 1, lease: '1h', prefix: 'away', cleanupProbability: 0 })
    const leases = [allowed(await exports.acquire('one')), allowed(await exports.acquire('two'))]
    isAway = true
    const errorOf = (call: Promise<unknown>) => call.catch((error: unknown) => error)
    const [one, two] = await Promise.all(leases.map((lease) => errorOf(lease.release())))
    expect([one, two]).toMatchObject([{ code: 'UNREACHABLE' }, { code: 'UNREACHABLE' }])
    expect(one).not.toBe(two)
  })

  test('leaves a denial as the answer if it was one before', async () => {
    let isStuck = false
    const { db } = watch(database.db, () => isStuck && new Promise(() => {}))
    const exports = new Semaphore({ db, limit: 1, lease: '1h', prefix: 'stuck later', cleanupProbability: 0 })
    await exports.acquire('org')
    fakeTime()
    const waits = waitBegins('stuck later')
    const waiting = exports.acquire('org', { timeout: '1s' })
    await waits
    isStuck = true
    await vi.advanceTimersByTimeAsync(1000)
    expect(await waiting).toMatchObject({ success: false })
  })
})

test('slots that were free for long are swept', async () => {
  const exports = new Semaphore({
    ...{ db: database.db, limit: 1, lease: '30s', prefix: 'swept' },
    ...{ clock, cleanupProbability: 1 },
  })
  await allowed(await exports.acquire('old')).release()
  time += 3 * 3_600_000
  const keys = async () => {
    await exports.acquire('new')
    return database.rows("select key from rate_limit_durable where prefix = 'swept'")
  }
  await expect.poll(keys).toEqual([{ key: 'new#0001' }])
})

test('a clock that fails takes and frees no slot, and is no statement that has failed', async () => {
  let fails = true
  const failing = () => {
    if (fails) throw new Error('no time')
    return clock()
  }
  const exports = new Semaphore({
    ...{ db: database.db, limit: 1, lease: '30s', prefix: 'clock fails' },
    ...{ clock: failing, cleanupProbability: 0 },
  })
  const ended: boolean[] = []
  const listen = (message: unknown) => {
    const { prefix, failed } = message as StatementMessage
    if (prefix === exports.prefix) ended.push(failed)
  }
  diagnostics.subscribe('drizzle-ratelimit:statement', listen)
  await expect(exports.acquire('org')).rejects.toMatchObject({ code: 'INVALID_CLOCK' })
  fails = false
  const lease = allowed(await exports.acquire('org'))
  fails = true
  await expect(lease.release()).rejects.toMatchObject({ code: 'INVALID_CLOCK' })
  fails = false
  expect(await exports.acquire('org')).toMatchObject({ success: false })
  diagnostics.unsubscribe('drizzle-ratelimit:statement', listen)
  expect([...new Set(ended)]).toEqual([false])
})

test('a clock that is far ahead', async () => {
  const far = () => new Date('3000-01-01')
  const exports = new Semaphore({
    db: database.db,
    limit: 1,
    lease: '30s',
    prefix: 'far',
    clock: far,
    cleanupProbability: 0,
  })
  const first = allowed(await exports.acquire('org'))
  expect(await first.extend()).toBe(true)
  expect(await first.release()).toBe(true)
  expect(await exports.acquire('org')).toMatchObject({ success: true })
})

test('leases are no usage', async () => {
  await slots('listed').acquire('org')
  const limiter = Ratelimit.fixedWindow(5, '1h')
  expect(await usage({ db: database.db, prefix: 'listed', limiter, durable: true })).toEqual([])
})

test('a semaphore is no limit on a rate: a list refuses it before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const ratelimit = new Semaphore({ db, limit: 1, lease: '30s', prefix: 'no rate' }) as unknown as Ratelimit
  const checked = limitAll([{ ratelimit, key: 'key' }])
  await expect(checked).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(statements).toEqual([])
})

test('keys are hashed, and watched', async () => {
  const decisions: unknown[] = []
  const listen = (message: unknown) => decisions.push(message)
  diagnostics.subscribe('drizzle-ratelimit:decision', listen)
  const exports = new Semaphore({ db: database.db, limit: 3, lease: '30s', prefix: 'hashed', hashKeys: true })
  await exports.acquire('ada@example.com')
  await exports.acquire('ada@example.com')
  diagnostics.unsubscribe('drizzle-ratelimit:decision', listen)
  const rows = await database.rows("select key from rate_limit_durable where prefix = 'hashed'")
  expect(rows.map(({ key }) => String(key).length)).toEqual([69, 69])
  const common = { prefix: 'hashed', rate: 1, success: true, limit: 3, retryAfter: 0, joined: false }
  expect(decisions).toMatchObject([
    { ...common, remaining: 2 },
    { ...common, remaining: 1 },
  ])
})
