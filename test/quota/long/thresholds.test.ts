import { beforeAll, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type LimitResult, limitAll } from '../../../src/index.ts'
import { Quota, type Threshold } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'

// Slow: a race needs many calls of many connections to show.

const CONNECTIONS = 24
const TOKENS = 240
const THRESHOLDS = [0.25, 0.5, 0.8, 1]
const KEYS = ['a', 'b']
const database = useDatabase()
const UNDO = new Error('undo')

let connections: ReturnType<typeof database.connect>[]
beforeAll(() => {
  connections = Array.from({ length: CONNECTIONS }, () => database.connect(1))
})

/**
 * Limiters that share nothing but the tables, each with a connection of its own, as separate processes would.
 */
function processes(prefix: string, clock: TestClock): Quota[] {
  return connections.map(
    ({ db }) =>
      new Quota({
        durable: false,
        timeout: false,
        ...{ db, limiter: calendarWindow(TOKENS, 'month'), prefix, clock: clock.now },
        ...{ thresholds: THRESHOLDS, cleanupProbability: 0 },
      }),
  )
}

/** What was crossed on each key, as often as it was reported. */
class Told {
  readonly #crossed = new Map(KEYS.map((key) => [key, [] as Threshold[]]))

  add(key: string, answer: LimitResult): void {
    if (answer.success) this.#crossed.get(key)?.push(...(answer.crossed ?? []))
  }

  expectEachOnce(thresholds: readonly Threshold[] = THRESHOLDS): void {
    const sorted = (list: readonly Threshold[]) => list.map((each) => JSON.stringify(each)).sort()
    for (const crossed of this.#crossed.values()) expect(sorted(crossed)).toEqual(sorted(thresholds))
  }
}

/** The middle of two months, in each of which the limits are new. */
const months = [0, 1].map((month) => Date.UTC(2026, month, 15))

test('24 connections on one window report each threshold once in each period', async () => {
  const clock = new TestClock()
  const all = processes('singles', clock)
  for (const time of months) {
    clock.ms = time
    const told = new Told()
    await Promise.all(
      all.map(async (ratelimit) => {
        for (let i = 0; i <= TOKENS / CONNECTIONS; i++) {
          for (const key of KEYS) told.add(key, await ratelimit.limit(key))
        }
      }),
    )
    told.expectEachOnce()
    for (const key of KEYS) expect(await all[0]?.getRemaining(key)).toMatchObject({ used: TOKENS })
  }
})

test('calls of several rates that share statements report each threshold once', async () => {
  const clock = new TestClock()
  const all = processes('bursts', clock)
  for (const time of months) {
    clock.ms = time
    const told = new Told()
    await Promise.all(
      all.flatMap((ratelimit) =>
        [1, 1, 1, 2, 2, 3, 3, 1].flatMap((rate) =>
          KEYS.map(async (key) => told.add(key, await ratelimit.limit(key, { rate }))),
        ),
      ),
    )
    told.expectEachOnce()
  }
})

test('with refunds in between no threshold is reported twice', async () => {
  const clock = new TestClock()
  const all = processes('refunds', clock)
  for (const time of months) {
    clock.ms = time
    const told = new Told()
    await Promise.all(
      all.map(async (ratelimit, process) => {
        for (let i = 0; i < 15; i++) {
          for (const key of KEYS) {
            told.add(key, await ratelimit.limit(key, { rate: 2 }))
            if ((i + process) % 3 === 0) await ratelimit.limit(key, { rate: -3 })
          }
        }
      }),
    )
    // The rest, so that the last one is reached, too.
    for (const ratelimit of all.slice(0, 1)) {
      for (const key of KEYS) {
        const { remaining: rate } = await ratelimit.getRemaining(key)
        told.add(key, await ratelimit.limit(key, { rate }))
      }
    }
    told.expectEachOnce()
  }
})

test('with rollbacks in between a committed call reports each threshold once', async () => {
  const all = processes('rollbacks', new TestClock())
  const told = new Told()
  let undone = 0
  await Promise.all(
    all.map(async (ratelimit, process) => {
      for (let i = 0; i < 24; i++) {
        for (const key of KEYS) {
          const charge = connections[process]?.db.transaction(async (tx) => {
            const answer = await ratelimit.limit(key, { tx })
            if ((i + process) % 2 === 0) throw UNDO
            told.add(key, answer)
          })
          await charge?.catch((error: unknown) => {
            if (error !== UNDO) throw error
            undone++
          })
        }
      }
    }),
  )
  expect(undone).toBeGreaterThan(TOKENS)
  told.expectEachOnce()
})

test('credits report each threshold once after each grant, while estimates and rollbacks run', async () => {
  const clock = new TestClock()
  const low: Threshold[] = [{ left: 100 }, { left: 20 }]
  const all = connections.map(
    ({ db }) =>
      new Credits({
        durable: false,
        timeout: false,
        ...{ db, prefix: 'credits', clock: clock.now },
        ...{ thresholds: low, cleanupProbability: 0 },
      }),
  )
  const [first] = all as [Credits]
  for (let round = 0; round < 2; round++) {
    for (const key of KEYS) await first.grant(key, TOKENS)
    const told = new Told()
    await Promise.all(
      all.map(async (ratelimit, process) => {
        for (let i = 0; i < 10; i++) {
          for (const key of KEYS) {
            const reserved = await ratelimit.reserve(key, { rate: 2, atLeast: 1 })
            if (!reserved.success) continue
            if ((i + process) % 3 === 0) {
              const undone = connections[process]?.db.transaction(async (tx) => {
                await reserved.commit(1, { tx })
                throw UNDO
              })
              await expect(undone).rejects.toBe(UNDO)
            }
            told.add(key, await reserved.commit(1))
          }
        }
      }),
    )
    for (const key of KEYS) {
      // Estimates were denied while others were open, so some credits are left.
      const { remaining: rate } = await first.getRemaining(key)
      if (rate > 0) told.add(key, await first.limit(key, { rate }))
    }
    told.expectEachOnce(low)
  }
})

test('limitAll reports each threshold of each key once', async () => {
  const all = processes('together', new TestClock())
  const told = new Told()
  await Promise.all(
    all.map(async (ratelimit) => {
      for (let i = 0; i <= TOKENS / CONNECTIONS; i++) {
        const { results } = await limitAll(KEYS.map((key) => ({ ratelimit, key })))
        for (const [k, result] of results.entries()) told.add(KEYS[k] ?? '', result)
      }
    }),
  )
  told.expectEachOnce()
})
