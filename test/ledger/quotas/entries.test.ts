import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { type NotScheduled, type Scheduled, schedule } from 'drizzle-ratelimit/schedule'
import fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit, type TransactionOf } from '../../../src/index.ts'
import { Quota, type QuotaConfig, reserveAll, settle, spend } from '../../../src/quota/index.ts'
import type { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { createLedger, entriesOf, writeEntries } from '../../support/ledger.ts'
import { runs } from '../../support/runs.ts'
import { kinds, quotaOn, TEN, UNDO } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()
const MONTH = TEN['calendar month']
const START = Date.UTC(2026, 0, 1)

beforeAll(() => createLedger(database))

/** A quota whose entries are written to a table, and the batches in which they came. */
function recording(limiter: Limiter = MONTH, options: Partial<QuotaConfig> = {}) {
  const batches: Entry[][] = []
  const write = async (tx: unknown, entries: readonly Entry[]) => {
    batches.push([...entries])
    await writeEntries(tx as never, entries)
  }
  const made = quotaOn(database, limiter, { ...options, use: [ledger(write)] } as Partial<QuotaConfig>)
  return { ...made, batches, written: () => entriesOf(database.db, made.prefix) }
}

/** Credits whose entries are written to a table, and the batches in which they came. */
function recordingCredits(clock: TestClock) {
  const batches: Entry[][] = []
  const write = async (tx: unknown, entries: readonly Entry[]) => {
    batches.push([...entries])
    await writeEntries(tx as never, entries)
  }
  const made = creditsOn(database, { clock: clock.now, use: [ledger(write)] })
  return { ...made, batches, written: () => entriesOf(database.db, made.prefix) }
}

type Tx = TransactionOf<typeof database.db>

/** Another limiter of the same rows. */
function beside(
  { config, clock }: Pick<ReturnType<typeof quotaOn>, 'config' | 'clock'>,
  write: (tx: Tx, entries: readonly Entry[]) => Promise<unknown>,
): Quota {
  const { prefix, limiter } = config
  return new Quota({ db: database.db, limiter, prefix, clock: clock.now, use: [ledger(write)] })
}

type Asked = readonly [{ readonly ratelimit: Quota; readonly key: string; readonly rate: number }]
type Reserving = (
  requests: Asked,
) => Promise<{ readonly success: false } | { readonly success: true; release(): Promise<unknown> }>

const FAILS = { use: [ledger(() => Promise.reject(UNDO))] } as Partial<QuotaConfig>

test('each charge, refund, reservation and settlement has an entry, and a denial and a look have none', async () => {
  const { quota, clock, batches, written } = recording()
  const common = { key: 'key', at: clock.ms, start: START }
  await quota.limit('key', { rate: 4 })
  await quota.limit('key', { rate: 40 })
  await quota.limit('key', { rate: 0 })
  await quota.getRemaining('key')
  await quota.limit('key', { rate: -1 })
  await quota.limit('key', { rate: 5, atLeast: 1, once: { id: 'event', for: '1d' } })
  await quota.limit('key', { rate: 5, atLeast: 1, once: { id: 'event', for: '1d' } })
  await quota.limit('key', { rate: 6, atLeast: 1 })
  await quota.limit('key', { rate: 3, force: true })
  await quota.limit('key', { rate: -8, start: START })
  await quota.limit('key', { rate: -8, start: START - 1 })
  const reserved = await quota.reserve('key', { rate: 5 })
  if (!reserved.success) throw new Error('denied')
  await reserved.commit(3)
  const exact = await quota.reserve('key')
  if (!exact.success) throw new Error('denied')
  await exact.commit(1)
  const entries = [
    { ...common, kind: 'charge', units: 4, remaining: 6 },
    { ...common, kind: 'refund', units: -1, remaining: 7 },
    { ...common, kind: 'charge', units: 5, remaining: 2, id: 'event' },
    { ...common, kind: 'charge', units: 2, remaining: 0 },
    { ...common, kind: 'charge', units: 3, remaining: 0 },
    { ...common, kind: 'refund', units: -8, remaining: 5 },
    { ...common, kind: 'reserve', units: 5, remaining: 0 },
    { ...common, kind: 'settle', units: -2, remaining: 2 },
    { ...common, kind: 'reserve', units: 1, remaining: 1 },
  ]
  expect(await written()).toEqual(entries)
  expect(batches).toEqual(entries.map((entry) => [{ prefix: quota.prefix, ...entry }]))
})

test.each([
  ['spend', ([{ ratelimit, key }]) => spend([{ ratelimit, key }], { rate: 6 })],
  ['reserveAll', (requests) => reserveAll(requests)],
  ['a name', ([{ ratelimit, key, rate }]) => ratelimit.reserve(key, { rate, id: 'job', expires: '1d' })],
] satisfies [string, Reserving][])(
  'what comes back too late by %s has no entry, because nothing comes back',
  async (_, reserving) => {
    const { quota, clock, written } = recording()
    const reserved = await reserving([{ ratelimit: quota, key: 'key', rate: 6 }])
    if (!reserved.success) throw new Error('denied')
    clock.ms = Date.UTC(2026, 1, 1)
    await quota.limit('key', { rate: 2 })
    const before = await written()
    await reserved.release()
    expect(await written()).toEqual(before)
  },
)

test('the entries of a name have its id: of the estimate, and of the cost, late, in time or above it', async () => {
  const of = { keepEnded: true, grace: '1h' } as const
  const { quota, clock, written } = recording(MONTH, of)
  for (const id of ['in time', 'late']) await quota.reserve('key', { rate: 4, id, expires: '1d' })
  await quota.settle({ key: 'key', id: 'in time' }, 1)
  clock.ms = Date.UTC(2026, 1, 1)
  await quota.settle({ key: 'key', id: 'late' }, 2)
  expect((await written()).map(({ kind, units, id }) => [kind, units, id])).toEqual([
    ['reserve', 4, 'in time'],
    ['reserve', 4, 'late'],
    ['settle', -3, 'in time'],
    ['settle', -2, 'late'],
  ])
  const above = recording()
  const requests = [{ ratelimit: above.quota, key: 'key' }]
  await spend(requests, { rate: 4, id: 'job', expires: '1d' })
  await settle(requests, 'job', { actual: 6 })
  expect(await above.written()).toMatchObject([
    { kind: 'reserve', units: 4, id: 'job' },
    { kind: 'charge', units: 2, id: 'job' },
  ])
})

test('a list hands out its entries together, to the callback of each limiter', async () => {
  const first = recording()
  const credits = recordingCredits(first.clock)
  const at = first.clock.ms
  await credits.credits.grant('org', 100, { once: { id: 'payment', for: '1d' } })
  expect(await credits.written()).toEqual([
    { key: 'org', kind: 'grant', units: 100, remaining: 100, at, id: 'payment' },
  ])
  const sources = [
    { ratelimit: first.quota, key: 'org' },
    { ratelimit: credits.credits, key: 'org' },
    { ratelimit: new Quota({ ...first.config, prefix: 'any', limiter: Ratelimit.unlimited() }), key: 'org' },
  ]
  const spent = await spend(sources.slice(0, 2), { rate: 25 })
  await spent.release()
  await spend(sources, { rate: 1000 })
  const all = await limitAll([
    { ratelimit: first.quota, key: 'org', rate: -4 },
    { ratelimit: first.quota, key: 'org', rate: 3 },
    { ratelimit: first.quota, key: 'new' },
  ])
  expect(all.success).toBe(true)
  const common = { prefix: first.prefix, at, start: START }
  expect(first.batches).toEqual([
    [{ ...common, key: 'org', kind: 'charge', units: 10, remaining: 0 }],
    [{ ...common, key: 'org', kind: 'refund', units: -10, remaining: 10 }],
    [{ ...common, key: 'org', kind: 'charge', units: 10, remaining: 0 }],
    [
      { ...common, key: 'new', kind: 'charge', units: 1, remaining: 9 },
      { ...common, key: 'org', kind: 'refund', units: -4, remaining: 4 },
      { ...common, key: 'org', kind: 'charge', units: 3, remaining: 1 },
    ],
  ])
  expect((await credits.written()).map(({ kind, units }) => [kind, units])).toEqual([
    ['grant', 100],
    ['charge', 15],
    ['refund', -15],
    ['charge', 100],
  ])
})

test('calls that share a statement hand out their entries together', async () => {
  const { quota, batches } = recording()
  await Promise.all(['a', 'b', 'c'].map((key) => quota.limit(key)))
  batches.length = 0
  const calls = ['a', 'b', 'c', 'a', 'a'].map((key) => quota.limit(key, { rate: 4 }))
  const allowed = (await Promise.all(calls)).filter(({ success }) => success)
  expect(allowed).toHaveLength(4)
  expect(batches.map((batch) => batch.length)).toEqual([4])
})

test.each(kinds)('$name: after any calls, the entries add up to what is used', async ({ limiter }) => {
  const call = fc.record({
    rate: fc.integer({ min: -4, max: 6 }),
    way: fc.constantFrom('limit', 'force', 'reserve', 'list', 'once', 'undone', 'together'),
    actual: fc.nat({ max: 8 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 14 }), async (calls) => {
      const { quota, batches, written } = recording(limiter)
      for (const { rate, way, actual } of calls) {
        const size = Math.abs(rate)
        if (way === 'limit') await quota.limit('key', { rate })
        else if (way === 'force') await quota.limit('key', { rate, force: true })
        else if (way === 'once')
          await quota.limit('key', { rate: size + 1, once: { id: `${actual}`, for: '1d' } })
        else if (way === 'together')
          await Promise.all([1, 1, size, size].map((each) => quota.limit('key', { rate: each })))
        else if (way === 'list') {
          await limitAll([
            { ratelimit: quota, key: 'key', rate },
            { ratelimit: quota, key: 'key', rate: actual },
          ])
        } else {
          const settleWith = async (tx?: never) => {
            const reserved = await quota.reserve('key', { rate: size, tx })
            if (reserved.success) await reserved.commit(actual, { tx })
          }
          if (way === 'reserve') await settleWith()
          else {
            await undone(database.db, async (tx) => {
              await settleWith(tx as never)
            })
          }
        }
      }
      const { used } = await quota.getRemaining('key')
      const rows = await written()
      expect(rows.reduce((sum, { units = 0 }) => sum + units, 0)).toBeCloseTo(used, 6)
      expect(rows.length).toBeLessThanOrEqual(batches.flat().length)
    }),
    runs(4),
  )
})

test('if it throws, nothing is charged, and the call rejects with its error as the cause', async () => {
  const { quota, rows, written } = recording()
  const failing = quotaOn(database, MONTH, { ...FAILS, prefix: quota.prefix, onError: 'allow' })
  const error = { code: 'ENTRIES_FAILED', cause: UNDO }
  await quota.limit('key', { rate: 2 })
  for (const i of [0, 1]) await quota.limit(`key ${i}`)
  // A row without a count is empty, and counts as none.
  const charged = async () =>
    (await rows()).flatMap(({ stored }) => (/"count":null/.test(JSON.stringify(stored)) ? [] : [stored]))
  const before = await charged()
  await expect(failing.quota.limit('key')).rejects.toMatchObject(error)
  await expect(failing.quota.limit('new')).rejects.toMatchObject(error)
  const once = { id: 'event', for: '1d' } as const
  await expect(failing.quota.limit('key', { once })).rejects.toMatchObject(error)
  const both = [quota, failing.quota].map((ratelimit, i) => ({ ratelimit, key: `key ${i}` }))
  await expect(limitAll(both)).rejects.toMatchObject(error)
  expect(await failing.quota.limit('key', { rate: 20 })).toMatchObject({ success: false })
  expect(await charged()).toEqual(before)
  expect(await quota.limit('key', { once })).not.toHaveProperty('repeated')
  // Those of the list were rolled back.
  expect(await written()).toHaveLength(4)
})

test('if it throws for one key, the other calls of the statement are charged', async () => {
  const seen: string[] = []
  const quota = beside(quotaOn(database, MONTH), async (_, entries) => {
    if (entries.some(({ key }) => key === 'key 5')) throw UNDO
    seen.push(...entries.map(({ key }) => key))
  })
  const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`)
  for (const round of ['new', 'known']) {
    const settled = await Promise.allSettled(keys.map((key) => quota.limit(key)))
    const rejected = settled.flatMap(({ status }, i) => (status === 'rejected' ? [keys[i]] : []))
    expect([round, rejected]).toEqual([round, ['key 5']])
  }
  expect(seen.toSorted()).toEqual([...keys, ...keys].filter((key) => key !== 'key 5').toSorted())
})

test('if it always throws, a batch fails after a few statements', async () => {
  let times = 0
  const { quota } = quotaOn(database, MONTH, {
    use: [
      ledger(() => {
        times++
        throw UNDO
      }),
    ],
  } as Partial<QuotaConfig>)
  const calls = Array.from({ length: 200 }, (_, i) => quota.limit(`key ${i}`))
  const settled = await Promise.allSettled(calls)
  expect(settled.every(({ status }) => status === 'rejected')).toBe(true)
  expect(times).toBeLessThan(30)
})

test('with `tx` it gets that transaction, and a failure leaves it usable', async () => {
  const made = recording()
  const { quota, written } = made
  let given: unknown
  const failing = beside(made, async (tx, entries) => {
    given = tx
    await writeEntries(tx, entries)
    throw UNDO
  })
  await database.db.transaction(async (tx) => {
    await quota.limit('key', { rate: 3, tx })
    await expect(failing.limit('key', { tx })).rejects.toMatchObject({ code: 'ENTRIES_FAILED' })
    expect(given).toBe(tx)
    expect(await quota.limit('key', { rate: 2, tx })).toMatchObject({ remaining: 5 })
  })
  expect((await written()).map(({ units }) => units)).toEqual([3, 2])
  expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
})

test('a settlement that fails can be repeated, and a late one has an entry of its period', async () => {
  const { clock, prefix } = quotaOn(database, MONTH)
  let fails = true
  const quota = new Quota({
    ...{ db: database.db, limiter: calendarWindow(100, 'month'), prefix, clock: clock.now },
    ...({ keepEnded: true, grace: '1h' } as const),
    use: [
      ledger<typeof database.db>(async (tx, entries) => {
        if (fails && entries[0]?.kind === 'settle') throw UNDO
        await writeEntries(tx, entries)
      }),
    ],
  })
  clock.ms = Date.UTC(2026, 1, 1) - 1
  const [one, two] = [await quota.reserve('key', { rate: 40 }), await quota.reserve('key', { rate: 10 })]
  if (!one.success || !two.success) throw new Error('denied')
  clock.ms++
  await expect(one.commit(25)).rejects.toMatchObject({ code: 'ENTRIES_FAILED' })
  fails = false
  expect(await one.commit(25)).toMatchObject({ returned: 15 })
  expect(await quota.limit('key')).toMatchObject({ ended: { used: 35 } })
  expect(await two.commit(30)).toMatchObject({ correction: { used: 20 } })
  const written = await entriesOf(database.db, prefix)
  const ofJanuary = written.filter(({ start }) => start === START)
  expect(ofJanuary.map(({ kind, units }) => [kind, units])).toEqual([
    ['reserve', 40],
    ['reserve', 10],
    ['settle', -15],
    ['settle', 20],
  ])
})

test('ledger refuses what is no function', () => {
  expect(() => ledger(true as never)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
})

test('a start time is a charge, and its cancel gives back what no later call counts on', async () => {
  const { quota, clock, written } = recording(Ratelimit.gcra(1, '1s'))
  const at = clock.ms
  const starts = []
  for (let place = 0; place < 3; place++) starts.push(await schedule(quota, 'key', { within: '10s' }))
  const cancel = (turn: Scheduled | NotScheduled | undefined) => turn?.success && turn.cancel()
  expect(await cancel(starts[0])).toBe(false)
  expect(await cancel(starts[1])).toBe(false)
  expect(await cancel(starts[2])).toBe(true)
  const once = { id: 'event', for: '1d' } as const
  const turn = await schedule(quota, 'key', { within: '10s', once })
  await schedule(quota, 'key', { within: '10s', once })
  await schedule(quota, 'key', { within: 0 })
  expect(await cancel(turn)).toBe(true)
  const charge = { key: 'key', at, kind: 'charge', units: 1, remaining: 0 }
  const refund = { ...charge, kind: 'refund', units: -1 }
  const ofEvent = { id: 'event' }
  expect(await written()).toMatchObject([
    ...[charge, charge, charge, refund],
    ...[
      { ...charge, ...ofEvent },
      { ...refund, ...ofEvent },
    ],
  ])
})

test.each([
  ['gcra', Ratelimit.gcra(1, '1s', { burst: 4 }), 3, -2],
  // What the last refill leaves would be lost in a full bucket.
  ['a bucket', Ratelimit.tokenBucket(3, '1s', 4), 4, -1],
])('the entry of a cancel says which part %s has given back', async (_, limiter, rate, units) => {
  const { quota, batches } = recording(limiter)
  const used = async () => (await quota.getRemaining('key')).used
  await schedule(quota, 'key', { rate: 4, within: 0 })
  const turn = await schedule(quota, 'key', { rate, within: '10s' })
  await schedule(quota, 'key', { rate: 1, within: '10s' })
  const before = await used()
  expect(turn.success && (await turn.cancel())).toBe(true)
  expect(batches.at(-1)).toMatchObject([{ kind: 'refund', units }])
  expect((await used()) - before).toBe(units)
})
