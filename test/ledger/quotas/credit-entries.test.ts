import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { limitAll } from '../../../src/index.ts'
import { settle, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { createLedger, entriesOf, writeEntries } from '../../support/ledger.ts'
import { runs } from '../../support/runs.ts'
import { HOUR_MS, quotaOn, TEN, UNDO } from '../../support/ten.ts'

// The entries of credits that end: one of each grant that a call changes, and one of what is owed.

const database = useDatabase()
const NAMED = { id: 'job', expires: '1h' } as const

let prefixes = 0

beforeAll(() => createLedger(database))

/** Credits whose entries are written to a table, and the batches in which they came. */
function recording(options: Partial<Pick<CreditsConfig, 'dryRun'>> = {}) {
  const batches: Entry[][] = []
  const write = async (tx: unknown, entries: readonly Entry[]) => {
    batches.push([...entries])
    await writeEntries(tx as never, entries)
  }
  const { quota: month, clock } = quotaOn(database, TEN['calendar month'], { use: [ledger(write)] } as object)
  const prefix = `credit entries ${++prefixes}`
  const config: CreditsConfig<true> = {
    ...{ db: database.db, dated: true, prefix, durable: true, clock: clock.now },
    ...{ cleanupProbability: 0, use: [ledger(write)], ...options },
  }
  const credits = new Credits(config)
  const written = () => entriesOf(database.db, prefix)
  /** The kind, the grant and the units of each entry since the last time. */
  let seen = 0
  const news = async () => {
    const all = await written()
    const fresh = all.slice(seen)
    seen = all.length
    return fresh.map(({ kind, grant, units, remaining }) => [kind, grant, units, remaining])
  }
  return { credits, month, clock, batches, written, news, config }
}

async function granted(...options: Parameters<typeof recording>) {
  const made = recording(...options)
  await made.credits.grant('org', 5, { id: 'gift', expires: '40d', priority: 10 })
  await made.credits.grant('org', 100, { id: 'paid/1' })
  return made
}

/** What the entries add up to: what each grant has used, and what is owed. */
function sumsOf(entries: readonly Partial<Entry>[]): ReadonlyMap<string | undefined, number> {
  const sums = new Map<string | undefined, number>()
  for (const { kind, grant, units = 0 } of entries)
    if (kind !== 'grant') sums.set(grant, (sums.get(grant) ?? 0) + units)
  return sums
}

test('each grant that a call changes has an entry, and so has what is owed', async () => {
  const { credits, news, written, clock } = await granted()
  expect(await news()).toEqual([
    ['grant', 'gift', 5, 5],
    ['grant', 'paid/1', 100, 100],
  ])
  await credits.grant('org', 9, { id: 'gift' })
  await credits.limit('org', { rate: 200 })
  await credits.limit('org', { rate: 0 })
  await credits.getRemaining('org')
  await credits.grants('org')
  expect(await news()).toEqual([])
  await credits.limit('org', { rate: 8 })
  expect(await news()).toEqual([
    ['charge', 'gift', 5, 0],
    ['charge', 'paid/1', 3, 97],
  ])
  await credits.limit('org', { rate: -4 })
  expect(await news()).toEqual([
    ['refund', 'gift', -1, 1],
    ['refund', 'paid/1', -3, 100],
  ])
  const once = { id: 'event', for: '1d' } as const
  await credits.limit('org', { rate: 200, atLeast: 1, once })
  await credits.limit('org', { rate: 1, once })
  expect(await news()).toEqual([
    ['charge', 'gift', 1, 0],
    ['charge', 'paid/1', 100, 0],
  ])
  expect((await written()).at(-1)).toEqual({
    ...{ key: 'org', kind: 'charge', units: 100, remaining: 0, at: clock.ms, id: 'event', grant: 'paid/1' },
  })
  await credits.limit('org', { rate: 7, force: true })
  expect(await news()).toEqual([['charge', undefined, 7, 0]])
  await credits.grant('org', 20, { id: 'more' })
  await credits.limit('org', { rate: 2 })
  expect(await news()).toEqual([
    ['grant', 'more', 20, 20],
    ['charge', undefined, -7, 0],
    ['charge', 'more', 9, 11],
  ])
  await credits.voidGrant('org', 'more')
  expect(await news()).toEqual([])
})

test('an estimate and its settlement are entries of their own, with the name', async () => {
  const { credits, month, news, written } = await granted()
  await news()
  const reserved = await credits.reserve('org', { rate: 8 })
  if (!reserved.success) expect.fail('denied')
  await reserved.commit(6)
  const both = [
    ['reserve', 'gift', 5, 0],
    ['reserve', 'paid/1', 3, 97],
  ]
  expect(await news()).toEqual([...both, ['settle', 'paid/1', -2, 99]])
  await credits.limit('org', { rate: -6 })
  await news()
  await credits.reserve('org', { rate: 8, ...NAMED })
  await credits.settle({ key: 'org', id: 'job' }, 110)
  await credits.settle({ key: 'org', id: 'job' }, 110)
  expect(await news()).toEqual([...both, ['settle', undefined, 5, 0], ['settle', 'paid/1', 97, 0]])
  expect((await written()).slice(-4).map(({ id }) => id)).toEqual(['job', 'job', 'job', 'job'])
  const requests = [
    { ratelimit: month, key: 'org' },
    { ratelimit: credits, key: 'org' },
  ] as const
  await credits.grant('org', 50, { id: 'more' })
  await news()
  await spend(requests, { rate: 13, id: 'spent', expires: '1h' })
  await settle(requests, 'spent', { actual: 11 })
  expect(await news()).toEqual([
    ['reserve', undefined, -5, 0],
    ['reserve', 'more', 8, 42],
    ['settle', 'more', -2, 44],
  ])
})

test('if a ledger throws, nothing is charged, alone, in a list and in a transaction', async () => {
  const { credits, month, config } = await granted()
  const failing = new Credits({ ...config, use: [ledger(() => Promise.reject(UNDO))] })
  const failed = { code: 'ENTRIES_FAILED' }
  const requests = [
    { ratelimit: month, key: 'org' },
    { ratelimit: failing, key: 'org' },
  ] as const
  await expect(failing.limit('org')).rejects.toMatchObject(failed)
  await expect(failing.reserve('org', NAMED)).rejects.toMatchObject(failed)
  await expect(failing.grant('org', 1, { id: 'other' })).rejects.toMatchObject(failed)
  await expect(limitAll(requests)).rejects.toMatchObject(failed)
  await database.db.transaction(async (tx) => {
    await expect(failing.limit('org', { tx })).rejects.toMatchObject(failed)
    await credits.limit('org', { tx, rate: 2 })
  })
  expect(await credits.getRemaining('org')).toMatchObject({ used: 2, limit: 105 })
  expect(await month.getRemaining('org')).toMatchObject({ used: 0 })
})

test('a list of more rows than a statement hands out its entries together', async () => {
  const { credits, batches, written, news } = recording()
  const ids = Array.from({ length: 60 }, (_, i) => `small ${String(i).padStart(2, '0')}`)
  for (const [priority, id] of ids.entries()) await credits.grant('org', 1, { id, priority })
  await news()
  batches.length = 0
  await credits.reserve('org', { rate: 55, ...NAMED })
  expect(batches).toHaveLength(1)
  const entries = (await written()).slice(-55)
  expect(entries.map(({ grant }) => grant).toSorted()).toEqual(ids.slice(0, 55))
  expect(new Set(entries.map(({ id, kind }) => `${id} ${kind}`))).toEqual(new Set(['job reserve']))
  await credits.settle({ key: 'org', id: 'job' }, 50)
  expect((await news()).slice(-5)).toEqual(ids.slice(50, 55).map((id) => ['settle', id, -1, 1]))
  expect(batches).toHaveLength(2)
})

test('with hashKeys, an entry has the hash of the key and the id of the grant', async () => {
  const { config, news, written } = recording()
  const credits = new Credits({ ...config, hashKeys: true })
  await credits.grant('org', 5, { id: 'gift' })
  await credits.limit('org', { rate: 2 })
  expect(await news()).toEqual([
    ['grant', 'gift', 5, 5],
    ['charge', 'gift', 2, 3],
  ])
  expect((await written()).map(({ key }) => key)).toEqual([
    expect.stringMatching(/^[\da-f]{64}$/),
    expect.stringMatching(/^[\da-f]{64}$/),
  ])
})

const CALLS = fc.oneof(
  fc.record({
    does: fc.constantFrom('limit', 'force', 'all' as const),
    rate: fc.integer({ min: -9, max: 12 }),
  }),
  fc.record({
    does: fc.constantFrom('reserve', 'named', 'spend' as const),
    rate: fc.nat({ max: 12 }),
    cost: fc.nat({ max: 18 }),
  }),
  fc.record({ does: fc.constant('grant' as const), amount: fc.integer({ min: 1, max: 9 }) }),
  fc.record({ does: fc.constant('wait' as const), hours: fc.nat({ max: 30 }) }),
)

test('the entries add up to what each grant has used, and to what is owed', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(CALLS, { minLength: 1, maxLength: 25 }), async (calls) => {
      const { credits, month, clock, written } = recording()
      const requests = [
        { ratelimit: month, key: 'org' },
        { ratelimit: credits, key: 'org' },
      ] as const
      for (const [i, call] of calls.entries()) {
        const named = { id: `job ${i}`, expires: '1h' } as const
        if (call.does === 'wait') clock.advance(call.hours * HOUR_MS)
        else if (call.does === 'grant')
          await credits.grant('org', call.amount, { id: `${i % 7}`, expires: `${1 + (i % 3)}d` })
        else if (call.does === 'limit') await credits.limit('org', { rate: call.rate })
        else if (call.does === 'force') await credits.limit('org', { rate: Math.abs(call.rate), force: true })
        else if (call.does === 'all') await limitAll([requests[0], { ...requests[1], rate: call.rate }])
        else if ('cost' in call && call.does === 'spend') {
          const spent = await spend(requests, { rate: call.rate, ...named })
          if (spent.success) await settle(requests, named.id, { actual: call.cost })
        } else if ('cost' in call) {
          const { rate, cost, does } = call
          const reserved = await credits.reserve('org', { rate, ...(does === 'named' ? named : {}) })
          if (reserved.success) await reserved.commit(cost)
        }
      }
      const grants = await credits.grants('org')
      const live = grants.filter(({ ended }) => !ended)
      const owed = (await credits.getRemaining('org')).used - live.reduce((sum, { used }) => sum + used, 0)
      const sums = sumsOf(await written())
      for (const { id, used } of grants) expect(sums.get(id) ?? 0).toBe(used)
      expect(sums.get(undefined) ?? 0).toBe(owed)
    }),
    runs(25),
  )
})
