import { createHash } from 'node:crypto'
import { pgTable, text } from 'drizzle-orm/pg-core'
import { beforeAll, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { TestClock } from '../support/clock.ts'
import { useDatabase } from '../support/databases.ts'

// The recipe of docs/cost-recipes.md: a row with a unique id, in the transaction that settles.

const SETTLERS = 8
const RESERVATIONS = 20
const ESTIMATE = 5
const CRASH = new Error('crash')
const settledTable = pgTable('settled', { id: text().primaryKey() })
const database = useDatabase()
const limiter = Ratelimit.fixedWindow(1000, '1h')
const config = { limiter, clock: new TestClock().now, reservationSecret: 'a secret of these tests' }

let processes: { db: typeof database.db; quota: Ratelimit }[]
beforeAll(async () => {
  await database.script('create table settled (id text primary key)')
  processes = Array.from({ length: SETTLERS }, () => {
    const { db } = database.connect(2)
    return {
      db,
      quota: new Ratelimit({ timeout: false, ...config, db, prefix: 'settled', cleanupProbability: 0 }),
    }
  })
})

test('eight settlers of each text, half of which crash: it is settled once', async () => {
  const [{ quota } = { quota: undefined }] = processes
  if (!quota) throw new Error('no process')
  const answers = await Promise.all(
    Array.from({ length: RESERVATIONS }, () => quota.reserve('key', { rate: ESTIMATE })),
  )
  expect(await quota.getRemaining('key')).toMatchObject({ used: RESERVATIONS * ESTIMATE })
  const outcomes: string[] = []
  const settle = async (place: number, token: string, actual: number) => {
    const { db, quota } = processes[place] as (typeof processes)[number]
    const outcome = await db
      .transaction(async (tx) => {
        const id = createHash('sha256').update(token).digest('hex')
        const inserted = await tx.insert(settledTable).values({ id }).onConflictDoNothing().returning()
        if (inserted.length === 0) return 'known'
        await quota.settle(token, actual, { tx })
        if (place % 2 === 0) throw CRASH
        return 'settled'
      })
      .catch((error: unknown) => {
        if (error !== CRASH) throw error
        return 'crashed'
      })
    outcomes.push(outcome)
  }
  const everywhere = (token: string, i: number) =>
    processes.map((_, place) => settle((place + i) % SETTLERS, token, i))
  await Promise.all(answers.map(String).flatMap(everywhere))
  const used = (RESERVATIONS * (RESERVATIONS - 1)) / 2
  expect(await quota.getRemaining('key')).toMatchObject({ used })
  const count = (outcome: string) => outcomes.filter((each) => each === outcome).length
  expect(count('settled')).toBe(RESERVATIONS)
  expect(count('crashed')).toBeGreaterThan(0)
})
