import { expect, test } from 'vitest'
import { type Database, Ratelimit } from '../../src/index.ts'
import { TestClock } from '../support/clock.ts'
import { useDatabase } from '../support/databases.ts'
import { watch } from '../support/watch.ts'
import { UNDO } from './ten.ts'

const database = useDatabase()

let prefixes = 0
function limitsOf(db: Database = database.db) {
  const clock = new TestClock()
  const common = { db, clock: clock.now, cleanupProbability: 0 }
  const limits = [
    new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: `all ${prefixes++}` }),
    new Ratelimit({ ...common, limiter: Ratelimit.tokenBucket(1, '1h', 2), prefix: `all ${prefixes++}` }),
    new Ratelimit({ ...common, limiter: Ratelimit.unlimited(), prefix: `all ${prefixes++}` }),
  ]
  const requests = limits.map((ratelimit) => ({ ratelimit, key: 'key' }))
  const used = () => Promise.all(limits.map(async (limit) => (await limit.getRemaining('key')).used))
  return { clock, requests, used }
}

test('all are charged, and given back', async () => {
  const { requests, used } = limitsOf()
  const reserved = await Ratelimit.reserveAll(requests)
  expect(reserved).toMatchObject({
    success: true,
    denied: [],
    results: [{ remaining: 4 }, { remaining: 1 }, {}],
  })
  expect(await used()).toEqual([1, 1, 0])
  await reserved.release()
  await reserved.release()
  expect(await used()).toEqual([0, 0, 0])
})

test('a denial charges nothing, and there is nothing to give back', async () => {
  const { requests, used } = limitsOf()
  const [one, two] = requests
  if (!one || !two) throw new Error('no requests')
  await Ratelimit.limitAll([one, { ...two, rate: 2 }])
  const denied = await Ratelimit.reserveAll(requests)
  expect(denied).toMatchObject({ success: false, denied: [two] })
  await denied.release()
  expect(await used()).toEqual([1, 2, 0])
})

test('calls for one row give back each its own', async () => {
  const { requests, used } = limitsOf()
  const [one] = requests
  if (!one) throw new Error('no requests')
  await one.ratelimit.limit('key')
  const reserved = await Ratelimit.reserveAll([{ ...one, rate: 3 }, one])
  expect(await used()).toEqual([5, 0, 0])
  await reserved.release()
  expect(await used()).toEqual([1, 0, 0])
})

test('the next window gives nothing back', async () => {
  const { clock, requests, used } = limitsOf()
  const reserved = await Ratelimit.reserveAll(requests)
  clock.advance(60_000)
  await Ratelimit.limitAll(requests)
  await reserved.release()
  expect(await used()).toEqual([1, 1, 0])
})

test('a negative rate is refused', async () => {
  const [one] = limitsOf().requests
  if (!one) throw new Error('no requests')
  const refused = Ratelimit.reserveAll([{ ...one, rate: -1 }])
  await expect(refused).rejects.toMatchObject({ code: 'INVALID_RATE' })
})

test('what could not be given back is given back by another call', async () => {
  let refused = 0
  const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
  const { db } = watch(database.db, () => refused-- > 0 && Promise.reject(away))
  const { requests, used } = limitsOf(db)
  const reserved = await Ratelimit.reserveAll(requests)
  refused = 1
  await expect(reserved.release()).rejects.toMatchObject({ code: 'UNREACHABLE' })
  expect((await used()).toSorted()).toEqual([0, 0, 1])
  await reserved.release()
  expect(await used()).toEqual([0, 0, 0])
})

test('a rollback undoes the charge', async () => {
  const { requests, used } = limitsOf()
  const undone = database.db.transaction(async (tx) => {
    expect(await Ratelimit.reserveAll(requests, { tx })).toMatchObject({ success: true })
    throw UNDO
  })
  await expect(undone).rejects.toBe(UNDO)
  expect(await used()).toEqual([0, 0, 0])
})
