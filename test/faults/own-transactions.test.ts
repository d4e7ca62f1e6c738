import { withReplicas } from 'drizzle-orm/pg-core'
import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../src/calendar/index.ts'
import { limitAll } from '../../src/index.ts'
import { Quota } from '../../src/quota/index.ts'
import { allowed } from '../support/allowed.ts'
import { TestClock } from '../support/clock.ts'
import { useDatabase } from '../support/databases.ts'
import { createLedger, writeEntries } from '../support/ledger.ts'
import type { Fault } from '../support/proxy.ts'
import { errorOf, expectQuiet, newPrefix, openPool, type Pool, SECRET, uncaughtBy, useProxy } from './kit.ts'

// Calls that take several statements run in a transaction that the limiter begins. A connection may break
// before its commit, or after it.

const database = useDatabase()
const network = useProxy(database)
beforeAll(() => createLedger(database))
// By chance, calls sweep the rows of names, also with keepEnded. A sweep would meet the fault of a call.
beforeEach(() => void vi.spyOn(Math, 'random').mockReturnValue(0.99))
afterEach(() => void vi.restoreAllMocks())

/** A call that begins a transaction. */
interface Way {
  readonly call: () => PromiseLike<unknown>
  /** What of its key is used, and how much of it the ledger has. */
  readonly books: () => Promise<readonly number[]>
}

const write = (tx: unknown, entries: readonly Entry[]) => writeEntries(tx as never, entries)
const RECORDED = { use: [ledger(write)] }

/** A month of 100 units, and what is used of it. */
function monthOn({ db }: Pool, config: object = {}) {
  const common = { limiter: calendarWindow(100, 'month'), prefix: newPrefix('own'), cleanupProbability: 0 }
  const month = new Quota({ durable: false, ...common, ...config, db })
  const used = async (at: object = {}) => {
    const direct = new Quota({ durable: false, ...common, ...at, db: database.db })
    return (await direct.getRemaining(SECRET)).used
  }
  return { month, used }
}

function recordedOn(opened: Pool, config: object = {}) {
  const { month, used } = monthOn(opened, { ...RECORDED, ...config })
  const written = async () => {
    const query = 'select coalesce(sum(units), 0) as units from app_ledger where prefix = $1'
    const [row] = await database.rows(query, [month.prefix])
    return Number(row?.['units'])
  }
  return { month, books: async () => [await used(), await written()] }
}

async function limiting(opened: Pool): Promise<Way> {
  const { month, books } = recordedOn(opened)
  await month.limit(SECRET, { rate: 4 })
  return { call: () => month.limit(SECRET, { rate: 7 }), books }
}

const ways: Record<string, (opened: Pool) => Promise<Way>> = {
  'limit with a ledger': limiting,
  'limitAll with a ledger': async (opened) => {
    const { month, books } = recordedOn(opened)
    await month.limit(SECRET, { rate: 4 })
    return { call: () => limitAll([{ ratelimit: month, key: SECRET, rate: 7 }]), books }
  },
  'commit with a ledger': async (opened) => {
    const { month, books } = recordedOn(opened)
    const reserved = allowed(await month.reserve(SECRET, { rate: 4 }))
    return { call: () => reserved.commit(11), books }
  },
  'a late settle with grace': async (opened) => {
    const end = Date.UTC(2026, 1, 1)
    const [clock, before] = [new TestClock(end - 1), new TestClock(end - 1)]
    const { month, used } = monthOn(opened, { keepEnded: true, grace: '1h', clock: clock.now })
    await month.reserve(SECRET, { rate: 4, id: 'job', expires: '1h' })
    clock.ms = end
    const books = async () => [await used({ clock: before.now })]
    return { call: () => month.settle({ key: SECRET, id: 'job' }, 11), books }
  },
}

/** Lets the next request in a transaction with these words meet the fault. Returns whether it has. */
function meets(words: RegExp, fault: Fault): () => boolean {
  let [hasBegun, isMet] = [false, false]
  network.proxy.fault = (request) => {
    const text = request.toString('latin1')
    hasBegun ||= BEGIN.test(text)
    if (isMet || !hasBegun || !words.test(text)) return 'pass'
    isMet = true
    return fault
  }
  return () => isMet
}

/** A client that gives up a silent connection. A busy machine answers sooner. */
const IMPATIENT = { query_timeout: 1000 }

const BEGIN = /begin isolation/
const WORK = /rate_?limit/
const COMMIT = /commit(?!ted)/

describe.each(Object.entries(ways))('%s', (_, open) => {
  test.each([
    ['begin', 'cut before', BEGIN, 'UNREACHABLE', 4],
    ['begin', 'cut after', BEGIN, 'UNREACHABLE', 4],
    ['begin', 'stall after', BEGIN, 'UNREACHABLE', 4],
    ['a statement', 'cut before', WORK, 'UNREACHABLE', 4],
    ['a statement', 'cut after', WORK, 'UNREACHABLE', 4],
    ['a statement', 'stall after', WORK, 'UNREACHABLE', 4],
    ['commit', 'cut before', COMMIT, 'OUTCOME_UNKNOWN', 4],
    ['commit', 'stall before', COMMIT, 'OUTCOME_UNKNOWN', 4],
    ['commit', 'cut after', COMMIT, 'OUTCOME_UNKNOWN', 11],
    ['commit', 'stall after', COMMIT, 'OUTCOME_UNKNOWN', 11],
  ] as const)('%s, %s: the error is true, and no connection is lost', async (_, fault, words, code, used) => {
    const opened = openPool(network.url, { ...(fault.startsWith('stall') ? IMPATIENT : {}), max: 2 })
    const { call, books } = await open(opened)
    const uncaught = await uncaughtBy(async () => {
      const isMet = meets(words, fault)
      expect(await errorOf(call())).toMatchObject({ code, contended: false })
      expect(isMet()).toBe(true)
    })
    expect(uncaught).toEqual([])
    const expected = (await books()).map(() => used)
    await expect.poll(books).toEqual(expected)
    // A query of the application joins no transaction of the limiter, so it commits none.
    for (let times = 0; times < 4; times++) await opened.pool.query('commit')
    expect(await books()).toEqual(expected)
    await expectQuiet(opened)
  })
})

test("onError: 'allow' charges once, though the connection breaks after the commit has arrived", async () => {
  const opened = openPool(network.url, { max: 2 })
  const { month, books } = recordedOn(opened, { onError: 'allow' })
  const calls: Readonly<Record<number, () => PromiseLike<object>>> = {
    11: () => month.limit(SECRET, { rate: 7 }),
    13: async () => {
      const { results, success } = await limitAll([{ ratelimit: month, key: SECRET, rate: 2 }])
      return { ...results[0], success }
    },
    // The estimate counts as charged.
    24: async () => {
      const reserved = await month.reserve(SECRET, { rate: 10 })
      if (reserved.success) await reserved.commit(11)
      return reserved
    },
  }
  await month.limit(SECRET, { rate: 4 })
  for (const [used, call] of Object.entries(calls)) {
    const isMet = meets(COMMIT, 'cut after')
    expect(await call()).toMatchObject({ success: true, degraded: true })
    expect(isMet()).toBe(true)
    await expect.poll(books).toEqual([Number(used), Number(used)])
  }
  await expectQuiet(opened)
})

test('a database with replicas loses no connection of the primary', async () => {
  const opened = openPool(network.url, { max: 2 })
  const db = withReplicas(opened.db as never, [database.db as never])
  const { call, books } = await limiting({ ...opened, db })
  for (let times = 0; times < 2; times++) {
    meets(BEGIN, 'cut before')
    expect(await errorOf(call())).toMatchObject({ code: 'UNREACHABLE' })
  }
  expect(await books()).toEqual([4, 4])
  await expectQuiet(opened)
})
