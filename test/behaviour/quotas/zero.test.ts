import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { block, blocks, lockout } from 'drizzle-ratelimit/lockout'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, type Once, Ratelimit } from '../../../src/index.ts'
import {
  openReservations,
  Quota,
  reserveAll,
  settle,
  settleExpired,
  spend,
} from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, JANUARY, oneOfEachKind, type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

// A rate of 0 looks in every call that takes a rate: a consumer of events may meet one of 0 units.

const database = useDatabase()
const ONCE: Once = { id: 'event', for: '35d' }
const NAMED = { id: 'job', expires: '1h' } as const
const NOTHING = { rate: 0, once: ONCE }

/** The rows of a limiter, also those of its ids, names and blocks. */
function rowsOf({ prefix }: Pick<QuotaUnderTest, 'prefix'>) {
  return database.rows(
    `select xmin::text, to_jsonb(stored) as stored from rate_limit_ephemeral stored
      where position($1 in prefix) > 0 order by prefix, key`,
    [prefix],
  )
}

/** The same limiter in another process. */
function elsewhere({ config }: QuotaUnderTest): Quota {
  return new Quota(config)
}

describe.each([
  ...oneOfEachKind,
  { name: 'a lockout', limiter: lockout(10, '10h', { block: '1h' }) },
  { name: 'a bucket that has to fill', limiter: Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 4 }) },
  { name: 'suspended', limiter: Ratelimit.fixedWindow(0, '1h') },
  { name: 'unlimited', limiter: Ratelimit.unlimited() },
])('$name: an event of 0 units', ({ limiter }) => {
  test.each([
    { of: 'a new key', prepare: async () => {} },
    {
      of: 'a key that has used everything',
      prepare: (quota: Quota) => quota.limit('key', { rate: 10, force: true }),
    },
  ])('of $of is answered as a look, however often, and writes nothing', async ({ prepare }) => {
    const mine = quotaOn(database, limiter)
    const { quota } = mine
    await prepare(quota)
    const before = await rowsOf(mine)
    const look = await quota.limit('key', { rate: 0 })
    expect(look.success).toBe(true)
    const request = { ratelimit: quota, key: 'key' }
    for (let delivered = 0; delivered < 2; delivered++) {
      expect(await quota.limit('key', NOTHING)).toEqual(look)
      expect(await quota.reserve('key', NOTHING)).toMatchObject(look)
      const all = await limitAll([{ ...request, rate: 0 }], { once: ONCE })
      expect(all).toMatchObject({ success: true, results: [look], retryAfter: 0 })
      expect(all).not.toHaveProperty('repeated')
      for (const once of [undefined, ONCE]) {
        const spent = await spend([request], { rate: 0, once })
        expect(spent).toMatchObject({ success: true, granted: [0], retryAfter: 0 })
        expect(spent.results).toEqual([look])
        expect(spent).not.toHaveProperty('repeated')
      }
    }
    expect(await rowsOf(mine)).toEqual(before)
  })
})

describe.each(oneOfEachKind)('$name: an estimate of 0', ({ limiter }) => {
  test('with a name is settled once, in any process, and its repeat is repeated', async () => {
    const mine = quotaOn(database, limiter)
    const { quota } = mine
    await quota.limit('key', { rate: 10 })
    const { used } = await quota.getRemaining('key')
    const reserve = (each = quota) => each.reserve('key', { rate: 0, ...NAMED })
    const reserved = await reserve()
    expect(reserved).toMatchObject({ success: true, remaining: 0 })
    expect(reserved).not.toHaveProperty('repeated')
    expect(await reserve(elsewhere(mine))).toMatchObject({ success: true, repeated: true, remaining: 0 })
    expect(await openReservations(quota)).toMatchObject([{ key: 'key', id: 'job', rate: 0 }])
    expect(await quota.getRemaining('key')).toMatchObject({ used })
    const settleWith = (actual: number) => elsewhere(mine).settle({ key: 'key', id: 'job' }, actual)
    expect(await settleWith(3)).toMatchObject({ success: true, remaining: 0 })
    expect(await settleWith(3)).toMatchObject({ repeated: true })
    expect(await allowed(reserved).commit(3)).toMatchObject({ repeated: true })
    await expect(settleWith(4)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await quota.getRemaining('key')).toMatchObject({ used: used + 3 })
    expect(await reserve()).toMatchObject({ success: true, repeated: true })
  })

  test('is settled by its answer as well, above 0 or not', async () => {
    const mine = quotaOn(database, limiter)
    const { quota } = mine
    const reserve = async (options: object) => allowed(await quota.reserve('key', { rate: 0, ...options }))
    for (const [place, options] of [{}, { once: ONCE }, NAMED].entries()) {
      const reserved = await reserve(options)
      expect(await reserved.commit(3)).toMatchObject({ success: true, remaining: 10 - 3 * (place + 1) })
      expect(await quota.getRemaining('key')).toMatchObject({ used: 3 * (place + 1) })
    }
    const before = (await rowsOf(mine)).length
    const released = await reserve({ ...NAMED, id: 'released' })
    expect(await released.release()).toMatchObject({ success: true, remaining: 1 })
    await (await reserve({})).release()
    expect(await quota.getRemaining('key')).toMatchObject({ used: 9 })
    expect(await rowsOf(mine)).toHaveLength(before + 1)
  })
})

test('settleExpired ends estimates of 0, and charges nothing', async () => {
  const { quota, clock } = quotaOn(database, TEN['fixed window'])
  for (const as of ['release', 'charge'] as const) {
    await quota.reserve('key', { rate: 0, id: as, expires: '1h' })
    clock.advance(HOUR_MS + 1)
    const ended = await database.db.transaction((tx) => settleExpired(quota, { tx, as }))
    expect(ended).toMatchObject([{ key: 'key', id: as, rate: 0 }])
    expect(await quota.settle({ key: 'key', id: as }, 0)).toMatchObject({ repeated: true, remaining: 10 })
  }
})

test('the books get an entry of the cost, and none of the estimate of 0', async () => {
  const entries: Entry[] = []
  const { quota } = quotaOn(database, TEN['fixed window'], {
    use: [ledger(async (_, added) => void entries.push(...added))],
  })
  const request = { ratelimit: quota, key: 'key' }
  await quota.limit('key', NOTHING)
  await quota.reserve('key', { rate: 0, ...NAMED })
  await spend([request], { rate: 0 })
  expect(entries).toEqual([])
  await quota.settle({ key: 'key', id: 'job' }, 3)
  expect(entries).toMatchObject([{ id: 'job', units: 3, remaining: 7 }])
})

test('an id that a charge has used is repeated for an event of 0 units too', async () => {
  const { quota } = quotaOn(database, TEN['calendar month'])
  await quota.limit('key', { rate: 4, once: ONCE })
  const repeated = { success: true, repeated: true, remaining: 6, retryAfter: 0 }
  expect(await quota.limit('key', NOTHING)).toMatchObject(repeated)
  const request = { ratelimit: quota, key: 'key' }
  expect(await limitAll([{ ...request, rate: 0 }], { once: ONCE })).toMatchObject({
    ...{ success: true, repeated: true, results: [repeated] },
  })
  const spent = await spend([request], NOTHING)
  expect(spent).toMatchObject({ success: true, repeated: true, granted: [0], results: [{ remaining: 6 }] })
  await expect(allowed(spent).commit(3)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  const again = allowed(await quota.reserve('key', NOTHING))
  expect(again).toMatchObject(repeated)
  await expect(again.commit(3)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
})

test('an event of 0 units leaves its id to a later charge', async () => {
  const { quota } = quotaOn(database, TEN['calendar month'])
  await quota.limit('key', NOTHING)
  expect(await quota.limit('key', { rate: 4, once: ONCE })).not.toHaveProperty('repeated')
  expect(await quota.limit('key', { rate: 4, once: ONCE })).toMatchObject({ repeated: true, remaining: 6 })
})

test('a blocked key may look in every call, as limit does', async () => {
  const mine = quotaOn(database, TEN['calendar month'], { use: [blocks()] })
  const { quota } = mine
  await block(quota, 'key', '1h')
  const before = await rowsOf(mine)
  const look = await quota.limit('key', { rate: 0 })
  expect(look).toMatchObject({ success: true, remaining: 10 })
  const request = { ratelimit: quota, key: 'key' }
  expect(await quota.limit('key', NOTHING)).toEqual(look)
  expect(await spend([request], { rate: 0 })).toMatchObject({ success: true, results: [look] })
  expect(await rowsOf(mine)).toEqual(before)
  expect(await quota.reserve('key', { rate: 0 })).toMatchObject(look)
  expect(await quota.reserve('key', { rate: 0, ...NAMED })).toMatchObject(look)
  const named = { ...NAMED, id: 'other' }
  expect(await reserveAll([{ ...request, rate: 0 }], named)).toMatchObject({ results: [look] })
  expect(await spend([request], { ...NAMED, id: 'third', rate: 0 })).toMatchObject({
    ...{ success: true, results: [look] },
  })
})

test('in a transaction it looks too, and a rollback takes the name away', async () => {
  const mine = quotaOn(database, TEN['calendar month'])
  const { quota } = mine
  await undone(database.db, async (tx) => {
    await quota.limit('key', { rate: 4, tx })
    expect(await quota.limit('key', { ...NOTHING, tx })).toMatchObject({ success: true, remaining: 6 })
    const request = { ratelimit: quota, key: 'key' }
    expect(await spend([request], { rate: 0, tx })).toMatchObject({ granted: [0] })
    const reserved = allowed(await quota.reserve('key', { rate: 0, ...NAMED, tx }))
    expect(await reserved.commit(2, { tx })).toMatchObject({ remaining: 4 })
  })
  expect(await rowsOf(mine)).toEqual([])
  expect(await quota.reserve('key', { rate: 0, ...NAMED })).not.toHaveProperty('repeated')
})

test('an estimate of 0 belongs to its period: within the grace time its cost does too', async () => {
  const cost = async (options: object, isElsewhere: boolean) => {
    const mine = quotaOn(database, calendarWindow(10, 'month'), { grace: '1h', keepEnded: true })
    const { quota, clock } = mine
    clock.ms = JANUARY.end - HOUR_MS
    await quota.limit('key', { rate: 2 })
    const reserved = allowed(await quota.reserve('key', { rate: 0, ...options }))
    clock.ms = JANUARY.end + 1
    const answer = isElsewhere
      ? await elsewhere(mine).settle({ key: 'key', id: NAMED.id }, 3)
      : await reserved.commit(3)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
    return answer
  }
  const plain = await cost({}, false)
  expect(await cost(NAMED, false)).toEqual(plain)
  expect(await cost(NAMED, true)).toEqual(plain)
})

describe('several limits', () => {
  function two() {
    const month = quotaOn(database, TEN['calendar month'])
    const bucket = quotaOn(database, TEN['interval bucket'], { clock: month.clock.now })
    const requests = [month, bucket].map(({ quota }) => ({ ratelimit: quota, key: 'key' }))
    const theirs = [month, bucket].map((each) => ({ ratelimit: elsewhere(each), key: 'key' }))
    const used = async () => {
      const looks = await Promise.all(requests.map(({ ratelimit, key }) => ratelimit.getRemaining(key)))
      return looks.map((look) => look.used)
    }
    return { requests, theirs, used, rows: async () => [...(await rowsOf(month)), ...(await rowsOf(bucket))] }
  }

  test('spend nothing, and pay what it has cost in the end', async () => {
    const { requests, used, rows } = two()
    const spent = allowed(await spend(requests, { rate: 0 }))
    expect(spent).toMatchObject({ granted: [0, 0], retryAfter: 0 })
    expect(await rows()).toEqual([])
    expect(await spent.commit(12)).toMatchObject({ granted: [10, 2] })
    expect(await used()).toEqual([10, 2])
    const other = await spend(requests, { rate: 0 })
    expect(await other.release()).toMatchObject({ granted: [0, 0] })
    expect(await used()).toEqual([10, 2])
  })

  test('spend nothing under a name, which any process settles once', async () => {
    const { requests, theirs, used } = two()
    const spendFor = () => spend(requests, { rate: 0, ...NAMED })
    expect(await spendFor()).toMatchObject({ success: true, granted: [0, 0] })
    expect(await spendFor()).toMatchObject({ success: true, granted: [0, 0], repeated: true })
    expect(await settle(theirs, NAMED.id, { actual: 12 })).toMatchObject({ granted: [10, 2] })
    expect(await settle(theirs, NAMED.id, { actual: 12 })).toMatchObject({ repeated: true })
    expect(await used()).toEqual([10, 2])
    const released = await spend(requests, { ...NAMED, id: 'released', rate: 0 })
    expect(await released.release()).toMatchObject({ granted: [0, 0] })
    expect(await used()).toEqual([10, 2])
  })

  test('reserve nothing, or a part of them nothing, under a name', async () => {
    const { requests, theirs, used } = two()
    const [month, bucket] = requests as [(typeof requests)[0], (typeof requests)[0]]
    const reserve = () => reserveAll([{ ...month, rate: 0 }, bucket], NAMED)
    expect(await reserve()).toMatchObject({ success: true, results: [{ remaining: 10 }, { remaining: 9 }] })
    expect(await reserve()).toMatchObject({ success: true, repeated: true })
    await settle(theirs, NAMED.id, { actual: [5, 0] })
    expect(await used()).toEqual([5, 0])
    const all = requests.map((each) => ({ ...each, rate: 0 }))
    const reserved = allowed(await reserveAll(all, { ...NAMED, id: 'nothing' }))
    await reserved.commit([0, 2])
    expect(await used()).toEqual([5, 2])
  })

  test('an unlimited plan and a used-up one', async () => {
    const { requests, used } = two()
    const [month, bucket] = requests as [(typeof requests)[0], (typeof requests)[0]]
    await bucket.ratelimit.limit('key', { rate: 14, force: true })
    const plans = [{ ...month, limiter: Ratelimit.unlimited() }, bucket]
    for (const naming of [{}, NAMED]) {
      const spent = allowed(await spend(plans, { rate: 0, ...naming }))
      expect(spent).toMatchObject({ granted: [0, 0] })
      expect(await spent.commit(2)).toMatchObject({ granted: [2, 0] })
    }
    expect(await used()).toEqual([0, 14])
  })
})

describe('credits', () => {
  function creditsOn() {
    const { clock, prefix } = quotaOn(database, TEN['calendar month'])
    const config = { db: database.db, prefix, clock: clock.now, cleanupProbability: 0 }
    return { credits: new Credits({ ...config, dated: true }), rows: () => rowsOf({ prefix }), clock }
  }

  test.each([
    ['without a grant', async () => {}],
    [
      'with some left',
      (credits: ReturnType<typeof creditsOn>['credits']) => credits.grant('key', 5, { id: 'a' }),
    ],
    [
      'in debt',
      async (credits: ReturnType<typeof creditsOn>['credits']) => {
        await credits.grant('key', 5, { id: 'a' })
        await credits.limit('key', { rate: 7, force: true })
      },
    ],
  ])('%s: an event of 0 units is a look that writes nothing', async (_, prepare) => {
    const { credits, rows, clock } = creditsOn()
    await prepare(credits)
    const before = await rows()
    const look = await credits.limit('key', { rate: 0 })
    expect(look.success).toBe(true)
    const { quota: month } = quotaOn(database, TEN['calendar month'], { clock: clock.now })
    for (let delivered = 0; delivered < 2; delivered++) {
      expect(await credits.limit('key', NOTHING)).toEqual(look)
      expect(await credits.reserve('key', NOTHING)).toMatchObject(look)
      for (const once of [undefined, ONCE]) {
        const sources = [
          { ratelimit: month, key: 'key' },
          { ratelimit: credits, key: 'key' },
        ]
        const spent = await spend(sources, { rate: 0, once })
        expect(spent).toMatchObject({ success: true, granted: [0, 0], results: [{ remaining: 10 }, look] })
        expect(spent).not.toHaveProperty('repeated')
      }
    }
    expect(await rows()).toEqual(before)
  })

  test('settle an estimate of 0 above 0', async () => {
    const { credits } = creditsOn()
    await credits.grant('key', 5, { id: 'a' })
    for (const options of [{ rate: 0 }, NOTHING]) {
      const reserved = allowed(await credits.reserve('key', options))
      expect(await reserved.commit(2)).toMatchObject({ success: true })
      await expect(reserved.commit(2)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    }
    expect(await allowed(await credits.reserve('key', { rate: 0 })).release()).toMatchObject({ remaining: 1 })
    const spent = allowed(await spend([{ ratelimit: credits, key: 'key' }], { rate: 0 }))
    expect(await spent.commit(3)).toMatchObject({ granted: [3] })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 7 })
  })

  test('an id that a charge has used is repeated', async () => {
    const { credits } = creditsOn()
    await credits.grant('key', 5, { id: 'a' })
    await credits.limit('key', { rate: 2, once: ONCE })
    expect(await credits.limit('key', NOTHING)).toMatchObject({ repeated: true, remaining: 3 })
    expect(await spend([{ ratelimit: credits, key: 'key' }], NOTHING)).toMatchObject({
      ...{ success: true, repeated: true, granted: [0] },
    })
  })
})
