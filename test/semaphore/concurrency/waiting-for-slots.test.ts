import diagnostics from 'node:diagnostics_channel'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SQL } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { describe, expect, test, vi } from 'vitest'
import type { Database, WaitMessage } from '../../../src/index.ts'
import { type Lease, Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { gate } from '../../support/gate.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
useFakeTime()

/** A semaphore with connections of its own, as another process would have. */
function process(prefix: string, limit: number, own: object = {}): Semaphore {
  const common = { db: database.connect(4).db, limit, lease: 3_600_000, cleanupProbability: 0 }
  return new Semaphore({ timeout: false, ...common, prefix, ...own })
}

const all = (calls: number, jobs: Semaphore, options: object = {}) =>
  Promise.all(Array.from({ length: calls }, async () => allowed(await jobs.acquire('org', options))))

/** Resolves when so many calls wait in line. */
function untilWaiting(calls: number, jobs: Semaphore): Promise<'waiting'> {
  let begun = 0
  return new Promise((resolve) => {
    const listen = (message: unknown) => {
      const { prefix, waitMs } = message as WaitMessage
      // It is published again at the end of a wait.
      if (prefix !== jobs.prefix || waitMs > 0 || ++begun < calls) return
      diagnostics.unsubscribe('drizzle-ratelimit:wait', listen)
      resolve('waiting')
    }
    diagnostics.subscribe('drizzle-ratelimit:wait', listen)
  })
}

/** Calls that wait in line, once they do. */
async function waiting(calls: number, jobs: Semaphore, options: object = {}) {
  const wait = untilWaiting(calls, jobs)
  const leases = Array.from({ length: calls }, () => jobs.acquire('org', { timeout: '1h', ...options }))
  await wait
  return leases
}

const setReal = setTimeout
const sleepReally = (ms: number) => new Promise((resolve) => setReal(resolve, ms))

describe('with timers that do not fire', () => {
  test('a release serves the line of its process at once, in its order', async () => {
    fakeTime()
    const jobs = process('served at once', 2)
    const leases = await all(2, jobs)
    const [one, two, three, four] = await waiting(4, jobs)
    await Promise.all(leases.map((lease) => lease.release()))
    for (const next of [one, two, three, four]) await allowed(await (next as Promise<Lease>)).release()
  })

  test('a look takes as many slots as there are calls that wait, by one statement', async () => {
    fakeTime()
    const leases = await all(5, process('taken together', 5))
    const { db, statements } = watch(database.connect(4).db)
    const jobs = process('taken together', 5, { db })
    const next = await waiting(4, jobs)
    for (const lease of leases) await lease.release()
    const before = statements.length
    await vi.advanceTimersByTimeAsync(80)
    expect(await Promise.all(next)).toMatchObject([1, 2, 3, 4].map(() => ({ success: true })))
    expect(statements.length - before).toBe(1)
  })

  test('after a call that found no room to wait, a free slot is found at once', async () => {
    fakeTime()
    // One may be kept for a moment for those that wait.
    const jobs = process('no room', 2)
    const leases = await all(2, jobs)
    const controller = new AbortController()
    const others = await waiting(1000, jobs, { signal: controller.signal })
    // Under another plan, so it would wait in a line of its own.
    const own = { timeout: '1h', limit: 2, lease: 1_800_000 } as const
    await expect(jobs.acquire('org', own)).rejects.toMatchObject({ code: 'OVERLOADED' })
    controller.abort()
    await Promise.allSettled(others)
    await Promise.all(leases.map((lease) => lease.release()))
    const waits = untilWaiting(1, jobs)
    expect(await Promise.race([jobs.acquire('org', own), waits])).toMatchObject({ success: true })
  })

  /** The process whose call gets a slot that the greedy one has released. */
  async function nextAfter(prefix: string): Promise<string | undefined> {
    const [greedy, patient] = [process(prefix, 1), process(prefix, 1)]
    const [first] = await all(1, greedy)
    await patient.acquire('another')
    const order: string[] = []
    const lines = { patient: await waiting(1, patient), greedy: await waiting(1, greedy) }
    const served = Object.entries(lines).map(async ([name, [lease]]) => {
      const job = allowed(await (lease as Promise<Lease>))
      order.push(name)
      await job.release()
    })
    await first?.release()
    await sleepReally(20)
    // Both look in turns now.
    while (order.length < 2) {
      await vi.advanceTimersByTimeAsync(80)
      await sleepReally(5)
    }
    await Promise.all(served)
    return order[0]
  }

  test('a slot is kept for the process that has waited longer, and then others have their turn', async () => {
    fakeTime()
    const next: (string | undefined)[] = []
    // On a busy machine a slot may not be kept long enough.
    while (next.at(-1) !== 'patient' && next.length < 10) next.push(await nextAfter(`kept ${next.length}`))
    expect(next).toContain('patient')
  })
})

describe('a free slot', () => {
  const still = { clock: () => new Date('2026-01-01') }

  /** A process of which one look can be stopped on its way, and the number of turns that it has ended. */
  function stoppable(prefix: string, own: object) {
    const { db } = database.connect(4)
    const dialect = new PgDialect()
    const [reached, passes] = [gate(), gate()]
    const seen = { ended: 0 }
    let isNextStopped = false
    const execute = async (query: SQL) => {
      const { sql, params } = dialect.sqlToQuery(query)
      const isLook = sql.includes('ratelimit_missing')
      if (isLook && isNextStopped) {
        isNextStopped = false
        // As a driver reads them that writes the statement to its connection: from now on it may arrive.
        for (const each of params) Object(each)[Symbol.toPrimitive]?.('default')
        reached.open()
        await passes.opened
      }
      const answer = await db.execute(query)
      if (!isLook) seen.ended++
      return answer
    }
    const stopNext = () => {
      isNextStopped = true
    }
    const stopped: Database = { ...watch(db).db, execute }
    const jobs = process(prefix, 1, { ...own, db: stopped })
    return { jobs, seen, stopNext, reached: reached.opened, pass: passes.open }
  }

  test.each([
    ['its first look', 'the clock of the database', {}, 1],
    ['its first look', 'a clock that stands still', still, 1],
    ['a look of its line', 'the clock of the database', {}, 2],
    ['a look of its line', 'a clock that stands still', still, 2],
  ])('is leased when the last call has stopped waiting during %s, by %s', async (look, name, own, ends) => {
    const prefix = `after the last: ${look}, ${name}`
    const [lease] = await all(1, process(prefix, 1, own))
    const { jobs, seen, stopNext, reached, pass } = stoppable(prefix, own)
    const controller = new AbortController()
    const { signal } = controller
    if (ends === 1) stopNext()
    const alone = () => [jobs.acquire('org', { timeout: '1h', signal })]
    const [call] = ends === 1 ? alone() : await waiting(1, jobs, { signal })
    if (ends === 2) stopNext()
    await reached
    controller.abort()
    await expect(call).rejects.toThrow()
    await vi.waitFor(() => expect(seen.ended).toBe(ends - 1), PATIENTLY)
    // This look comes after the end of the turn, and has one again.
    pass()
    await vi.waitFor(() => expect(seen.ended).toBe(ends), PATIENTLY)
    await lease?.release()
    const [again] = await all(1, process(prefix, 1, own))
    await again?.release()
    await all(1, jobs)
  })

  test.each([
    ['the clock of the database', {}],
    ['a clock that stands still', still],
  ])('is leased though a process that waited has died, by %s', async (name, own) => {
    const prefix = `died: ${name}`
    const [lease] = await all(1, process(prefix, 1, own))
    let isDead = false
    let underWay = 0
    const { db } = database.connect(1)
    const execute = async (query: SQL) => {
      if (isDead) return new Promise<never>(() => {})
      underWay++
      return db.execute(query).finally(() => underWay--)
    }
    const dying = process(prefix, 1, { ...own, db: { ...watch(db).db, execute } })
    const controller = new AbortController()
    const [lost] = await waiting(1, dying, { signal: controller.signal })
    isDead = true
    await vi.waitFor(() => expect(underWay).toBe(0), PATIENTLY)
    await lease?.release()
    await all(1, process(prefix, 1, own))
    controller.abort()
    await expect(lost).rejects.toThrow()
  })

  test('is leased though a process that waited has died, and answers are late', async () => {
    const prefix = 'died, late answers'
    const [lease] = await all(1, process(prefix, 1))
    let isDead = false
    const dying = watch(database.connect(1).db, () => isDead && new Promise(() => {}))
    const controller = new AbortController()
    const [lost] = await waiting(1, process(prefix, 1, { db: dying.db }), { signal: controller.signal })
    isDead = true
    controller.abort()
    await expect(lost).rejects.toThrow()
    await lease?.release()
    // The answer to the second look comes when the slot is not kept any more.
    const { db } = database.connect(1)
    let looks = 0
    const execute = async (query: SQL) => {
      const answer = await db.execute(query)
      if (++looks === 2) await sleep(600)
      return answer
    }
    const late: Database = { ...watch(db).db, execute }
    await all(1, process(prefix, 1, { db: late }))
  })

  test('of a larger plan is leased while calls of a smaller plan wait', async () => {
    const jobs = process('plans', 1)
    const other = process('plans', 1)
    const large = { limit: 3 }
    const [first] = await all(1, jobs, large)
    const controller = new AbortController()
    const waits = { signal: controller.signal }
    const small = [...(await waiting(1, jobs, waits)), ...(await waiting(1, other, waits))]
    const leases = [...(await all(1, jobs, large)), ...(await all(1, other, large))]
    expect(await jobs.acquire('org', large)).toMatchObject({ success: false })
    const next = [...(await waiting(1, jobs, large)), ...(await waiting(1, other, large))]
    for (const lease of leases) await lease.release()
    expect(await Promise.all(next)).toMatchObject([{ success: true }, { success: true }])
    controller.abort()
    expect(await Promise.allSettled(small)).toMatchObject([{ status: 'rejected' }, { status: 'rejected' }])
    await first?.release()
  })
})

describe('an answer that comes later than its lease', () => {
  const lease = 3_600_000

  /** Its first answers come late. Only time that the test lets pass ends a lease. */
  function slow(prefix: string, late: number) {
    fakeTime()
    let looks = 0
    const { db } = watch(database.connect(2).db, async (text) => {
      if (text.includes('ratelimit_missing') && looks++ < late) await vi.advanceTimersByTimeAsync(lease)
    })
    return process(prefix, 1, { db, lease })
  }

  /** Lets the pauses between looks pass. */
  async function passing<T>(answer: Promise<T>): Promise<T> {
    let isOver = false
    const end = () => {
      isOver = true
    }
    answer.then(end, end)
    while (!isOver) {
      await vi.advanceTimersByTimeAsync(20)
      await sleepReally(1)
    }
    return answer
  }

  test('is no lease: it looks again', async () => {
    const job = allowed(await passing(slow('late once', 1).acquire('org')))
    await vi.advanceTimersByTimeAsync(lease / 4)
    expect(job.signal.aborted).toBe(false)
  })

  test('is no lease: it looks again while it waits', async () => {
    const jobs = slow('late while waiting', 2)
    const job = allowed(await passing(jobs.acquire('org', { timeout: '10h' })))
    await vi.advanceTimersByTimeAsync(lease / 4)
    expect(job.signal.aborted).toBe(false)
  })

  test('fails if all are late, and holds nothing', async () => {
    const answer = slow('late', Number.POSITIVE_INFINITY).acquire('org')
    await expect(passing(answer)).rejects.toMatchObject({ code: 'TIMEOUT' })
    await all(1, process('late', 1))
  })
})
