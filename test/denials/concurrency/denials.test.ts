import { countDenials } from 'drizzle-ratelimit/denials'
import { denied } from 'drizzle-ratelimit/reports'
import { expect, test, vi } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { times } from '../../support/runs.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(0, '1h')
const CALLS = times(60)

/** A process of its own, as far as the database can tell: it has its own pool and its own counts. */
function processOf(prefix: string) {
  const handed: Promise<unknown>[] = []
  const ratelimit = new Ratelimit({
    timeout: false,
    ...{ db: database.connect(2).db, limiter, prefix, use: [countDenials({ every: 1 })] },
    waitUntil: (work) => void handed.push(work),
  })
  const written = async () => {
    for (const each of handed) await each
  }
  return { ratelimit, written }
}

async function deniedOf(prefix: string): Promise<Record<string, number>> {
  const found = await denied({ db: database.db, prefix, durable: false })
  return Object.fromEntries(found.map(({ key, denials }) => [key, denials]))
}

test('processes that count the same keys at once lose no denial and add none', async () => {
  const processes = Array.from({ length: 6 }, () => processOf('at once'))
  await Promise.all(
    processes.map(async ({ ratelimit }) => {
      for (let i = 0; i < CALLS; i++) {
        await Promise.all(['a', 'b', 'c'].map((key) => ratelimit.limit(key)))
      }
    }),
  )
  await Promise.all(processes.map(({ written }) => written()))
  expect(await deniedOf('at once')).toEqual({ a: 6 * CALLS, b: 6 * CALLS, c: 6 * CALLS })
})

test('a count that somebody holds delays no check and no other count, and is written when it is free', async () => {
  const { ratelimit, written } = processOf('held')
  await ratelimit.limit('a')
  await ratelimit.limit('b')
  await written()
  const holder = await database.client()
  await holder.query('begin')
  await holder.query(
    `select from rate_limit_ephemeral where prefix = 'held [denied]' and key like '% a' for update`,
  )
  await ratelimit.limit('a')
  await ratelimit.limit('b')
  await vi.waitFor(async () => expect(await deniedOf('held')).toEqual({ a: 1, b: 2 }), PATIENTLY)
  await holder.query('commit')
  await written()
  expect(await deniedOf('held')).toEqual({ a: 2, b: 2 })
})
