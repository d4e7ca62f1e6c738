import { beforeAll, expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'

// The recipe of docs/cost-recipes.md: a webhook settles by the name, in a transaction with work of its own.

const SETTLERS = 8
const RESERVATIONS = 20
const ESTIMATE = 5
const CRASH = new Error('crash')
const database = useDatabase()
const limiter = Ratelimit.fixedWindow(1000, '1h')
const common = { limiter, clock: new TestClock().now, cleanupProbability: 0, timeout: false } as const

let processes: { db: typeof database.db; quota: Quota }[]
beforeAll(() => {
  processes = Array.from({ length: SETTLERS }, () => {
    const { db } = database.connect(2)
    return { db, quota: new Quota({ durable: false, ...common, db, prefix: 'settled' }) }
  })
})

test('eight settlers of each name, half of which crash: it is settled once', async () => {
  const [{ quota } = { quota: undefined }] = processes
  if (!quota) throw new Error('no process')
  const ids = Array.from({ length: RESERVATIONS }, (_, i) => `job ${i}`)
  await Promise.all(ids.map((id) => quota.reserve('key', { rate: ESTIMATE, id, expires: '1h' })))
  expect(await quota.getRemaining('key')).toMatchObject({ used: RESERVATIONS * ESTIMATE })
  const outcomes: string[] = []
  const settle = async (place: number, id: string, actual: number) => {
    const { db, quota } = processes[place] as (typeof processes)[number]
    const outcome = await db
      .transaction(async (tx) => {
        const { repeated } = await quota.settle({ key: 'key', id }, actual, { tx })
        if (repeated) return 'known'
        if (place % 2 === 0) throw CRASH
        return 'settled'
      })
      .catch((error: unknown) => {
        if (error !== CRASH) throw error
        return 'crashed'
      })
    outcomes.push(outcome)
  }
  const everywhere = (id: string, i: number) =>
    processes.map((_, place) => settle((place + i) % SETTLERS, id, i))
  await Promise.all(ids.flatMap(everywhere))
  const used = (RESERVATIONS * (RESERVATIONS - 1)) / 2
  expect(await quota.getRemaining('key')).toMatchObject({ used })
  const count = (outcome: string) => outcomes.filter((each) => each === outcome).length
  expect(count('settled')).toBe(RESERVATIONS)
  expect(count('crashed')).toBeGreaterThan(0)
})
