import { setTimeout as sleep } from 'node:timers/promises'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { expect, test } from 'vitest'
import { type Database, Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { holdRows } from '../../support/locks.ts'
import { PATIENTLY } from '../../support/patience.ts'

// Prefetched units at the end of a window, by the server's clock and in a forced order.

const database = useDatabase()
const PERIOD_MS = 700
let prefixes = 0

/** A limiter whose answers arrive when the test lets them. */
function prefetching(period: number = PERIOD_MS) {
  let arrives = Promise.resolve()
  const delayed = (db: Database): Database => ({
    execute: async (query) => {
      const rows = await db.execute(query)
      await arrives
      return rows
    },
    transaction: (work, config) => db.transaction((tx) => work(delayed(tx)), config),
    refreshMaterializedView: undefined,
  })
  const prefix = `stock ${prefixes++}`
  const ratelimit = new Ratelimit({
    timeout: false,
    ...{ db: delayed(database.db), limiter: Ratelimit.fixedWindow(1000, period), prefix },
    ...{ cleanupProbability: 0, use: [prefetch({ tokens: 50, for: '10s' })] },
  })
  const delay = (until: Promise<void>) => {
    arrives = until
  }
  return { ratelimit, prefix, delay }
}

async function rowOf(prefix: string): Promise<{ readonly count: number; readonly start: number }> {
  const query = `select count, extract(epoch from window_start) * 1000 as start
    from rate_limit_ephemeral where prefix = $1`
  const [row] = await database.rows(query, [prefix])
  return { count: Number(row?.['count']), start: Number(row?.['start']) }
}

/** The end of the window in which a stock has just begun, of which the next call would use some. */
async function begin(ratelimit: Ratelimit): Promise<{ readonly start: number; readonly calls: number }> {
  for (let calls = 1; ; calls++) {
    const answer = await ratelimit.limit('key')
    if (answer.success && answer.prefetched) return { start: answer.start ?? expect.fail(), calls }
  }
}

async function until(time: number): Promise<void> {
  while (Date.now() < time) await sleep(1)
}

/** Tries until nothing was too slow: what is right in a window says nothing of the next one. */
async function untilInTime(attempt: () => Promise<'in time' | 'too late'>): Promise<void> {
  while ((await attempt()) === 'too late');
}

test('an answer that comes after the end of its window brings no stock', () =>
  untilInTime(async () => {
    const { ratelimit, delay } = prefetching()
    const { start } = await begin(ratelimit)
    delay(until(start + PERIOD_MS))
    // It was charged before the end, and is answered after it.
    for (;;) {
      const answer = await ratelimit.limit('key', { rate: 3 })
      if (answer.success && answer.start !== start) return 'too late'
      if (answer.success && !answer.prefetched) break
    }
    expect(Date.now()).toBeGreaterThanOrEqual(start + PERIOD_MS)
    const next = await ratelimit.limit('key')
    expect(next).not.toHaveProperty('prefetched')
    expect(next.success && next.start).toBeGreaterThanOrEqual(start + PERIOD_MS)
    return 'in time'
  }))

test('a call that waits for the row beyond the end of the window brings no unit of it along', () =>
  untilInTime(async () => {
    const { ratelimit, prefix } = prefetching()
    const { start } = await begin(ratelimit)
    const holder = await holdRows(database, prefix)
    // More than is left of the stock.
    const call = ratelimit.limit('key', { rate: 60 })
    await until(start + PERIOD_MS + 5)
    await holder.query('commit')
    const answer = await call
    expect(answer).toMatchObject({ success: true, remaining: 1000 - 60 })
    expect(answer.success && answer.start).toBeGreaterThanOrEqual(start + PERIOD_MS)
    let granted = 60
    for (let i = 0; i < 20; i++) {
      const next = await ratelimit.limit('key')
      if (next.success && next.start === (answer.success && answer.start)) granted++
    }
    const stored = await rowOf(prefix)
    if (stored.start !== (answer.success && answer.start)) return 'too late'
    expect(granted).toBeLessThanOrEqual(stored.count)
    return 'in time'
  }))

test('of two processes at the end of a limit, none is denied while the row has units', async () => {
  const one = prefetching(3_600_000)
  const other = new Ratelimit({
    timeout: false,
    ...{ db: database.db, limiter: Ratelimit.fixedWindow(1000, 3_600_000), prefix: one.prefix },
    ...{ cleanupProbability: 0, use: [prefetch({ tokens: 50, for: 100 })] },
  })
  let granted = 0
  const run = async (ratelimit: Ratelimit) => {
    for (;;) {
      const { success } = await ratelimit.limit('key')
      if (!success) return
      granted++
    }
  }
  await Promise.all([run(one.ratelimit), run(other)])
  // What the first to be denied had not seen was unused in the other process.
  await Promise.all([run(one.ratelimit), run(other)])
  await Promise.all([one.ratelimit.close(), other.close()])
  await expect.poll(async () => (await rowOf(one.prefix)).count, PATIENTLY).toBe(granted)
  expect(granted).toBeLessThanOrEqual(1000)
  expect(granted).toBeGreaterThan(980)
})

test('more calls wait in two processes than their stocks have units: no unit is lost, and none is used twice', async () => {
  const limit = 3_000
  const common = {
    ...{ db: database.db, limiter: Ratelimit.fixedWindow(limit, '1h'), prefix: `crowd ${prefixes++}` },
    ...{ cleanupProbability: 0, timeout: false as const },
  }
  const processes = [0, 1].map(
    () => new Ratelimit({ ...common, use: [prefetch({ tokens: 50, for: '10s' })] }),
  )
  let passed = 0
  const crowd = async (ratelimit: Ratelimit) => {
    for (let turn = 0; turn < 20; turn++) {
      const answers = await Promise.all(Array.from({ length: 120 }, () => ratelimit.limit('key')))
      passed += answers.filter(({ success }) => success).length
    }
  }
  await Promise.all(processes.map(crowd))
  await Promise.all(processes.map((ratelimit) => ratelimit.close()))
  const { used, remaining } = await new Ratelimit(common).getRemaining('key')
  expect([used, remaining]).toEqual([passed, limit - passed])
  // A process may be denied while the other one holds the last units.
  expect(passed).toBeGreaterThan(limit - 2 * 50)
})
