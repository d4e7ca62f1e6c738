import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Lease, type NoLease, Semaphore } from '../../../src/semaphore/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

let prefixes = 0
function slots(limit: number, own: object = {}): Semaphore {
  const prefix = `slots ${prefixes++}`
  return new Semaphore({ db: database.db, limit, lease: '10s', prefix, cleanupProbability: 0, ...own })
}

function leased(answers: readonly (Lease | NoLease)[]): Lease[] {
  return answers.flatMap((answer) => (answer.success ? [answer] : []))
}

test('calls of many keys share a statement, and so do their releases', async () => {
  const { db, statements } = watch(database.db)
  const jobs = slots(2, { db })
  const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`)
  const first = leased(await Promise.all(keys.map((key) => jobs.acquire(key))))
  expect(first).toHaveLength(20)
  expect(statements).toHaveLength(1)
  expect(await Promise.all(first.map((job) => job.extend()))).not.toContain(false)
  expect(statements).toHaveLength(2)
  expect(await Promise.all(first.map((job) => job.release()))).not.toContain(false)
  expect(statements).toHaveLength(3)
  const second = leased(await Promise.all(keys.map((key) => jobs.acquire(key))))
  expect(second.map(({ fence }, i) => fence > (first[i] as Lease).fence)).not.toContain(false)
})

test('calls of one key at once get a slot each, and those beyond the limit none', async () => {
  const clock = new TestClock(1_000_000)
  const { db, statements } = watch(database.db)
  const jobs = slots(5, { db, clock: clock.now })
  const acquire = (calls: number) => Promise.all(Array.from({ length: calls }, () => jobs.acquire('key')))
  const answers = await acquire(8)
  expect(statements).toHaveLength(1)
  expect(answers.map(({ success }) => success)).toEqual([true, true, true, true, true, false, false, false])
  expect(new Set(leased(answers).map(({ fence }) => fence)).size).toBe(1)
  expect(answers[7]).toMatchObject({ retryAfter: 10_000 })
  clock.advance(4_000)
  expect(await leased(answers)[2]?.release()).toBe(true)
  expect(await acquire(2)).toMatchObject([{ success: true }, { success: false, retryAfter: 6_000 }])
  const rows = await database.rows('select key from rate_limit_durable where prefix = $1', [jobs.prefix])
  expect(rows).toHaveLength(5)
})

test('a second release at the same time does nothing', async () => {
  const jobs = slots(1)
  const [job] = leased([await jobs.acquire('key')])
  expect(await Promise.all([job?.release(), job?.release()])).toEqual([true, false])
})

/**
 * The slots of a key by the rule in words: number n is leased only if n and the leases above it fit the limit.
 */
class Model {
  readonly #ends = new Map<number, number>()

  acquire(limit: number, now: number, leaseMs: number): number | undefined {
    const isLeased = (number: number) => (this.#ends.get(number) ?? 0) > now
    const fits = (number: number) =>
      number + [...this.#ends.keys()].filter((other) => other > number && isLeased(other)).length <= limit
    const open = Array.from({ length: limit }, (_, i) => i + 1).filter(
      (each) => !isLeased(each) && fits(each),
    )
    // A row that exists comes before a new one.
    const number = open.find((each) => this.#ends.has(each)) ?? open[0]
    if (number !== undefined) this.#ends.set(number, now + leaseMs)
    return number
  }

  release(number: number, now: number): boolean {
    const isHeld = (this.#ends.get(number) ?? 0) > now
    if (isHeld) this.#ends.set(number, now)
    return isHeld
  }

  leased(now: number): number[] {
    return [...this.#ends].filter(([, end]) => end > now).map(([number]) => number)
  }
}

test('random calls at once lease what a model leases one after the other', async () => {
  const key = fc.constantFrom('a', 'b', 'c')
  const step = fc.oneof(
    fc.record({
      calls: fc.array(key, { minLength: 1, maxLength: 8 }),
      limit: fc.integer({ min: 0, max: 5 }),
    }),
    fc.record({ release: fc.nat(), often: fc.integer({ min: 1, max: 3 }) }),
    fc.record({ advance: fc.integer({ min: 1, max: 12_000 }) }),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
      const clock = new TestClock(1_000_000)
      const jobs = slots(5, { clock: clock.now })
      const models = new Map(['a', 'b', 'c'].map((each) => [each, new Model()]))
      const held: { lease: Lease; key: string }[] = []
      for (const each of steps) {
        if ('advance' in each) clock.advance(each.advance)
        else if ('release' in each) {
          const given = held.splice(each.release % (held.length + 1), each.often)
          const before = [...models].map(([name, model]) => [name, model.leased(clock.ms).length])
          const freed = await Promise.all(given.map(({ lease }) => lease.release()))
          const rows = await numbersOf(jobs.prefix, clock.ms)
          for (const [name, model] of models) {
            for (const number of model.leased(clock.ms)) {
              if (!rows.get(name)?.includes(number)) model.release(number, clock.ms)
            }
          }
          const after = [...models].map(([name, model]) => [name, model.leased(clock.ms).length])
          const count = (all: typeof before) => all.reduce((sum, [, leases]) => sum + Number(leases), 0)
          expect(count(before) - count(after)).toBe(freed.filter(Boolean).length)
        } else {
          const { limit } = each
          const answers = await Promise.all(each.calls.map((name) => jobs.acquire(name, { limit })))
          for (const [i, name] of each.calls.entries()) {
            const lease = answers[i] as Lease | NoLease
            const number = models.get(name)?.acquire(limit, clock.ms, 10_000)
            expect(lease.success).toBe(number !== undefined)
            if (lease.success) held.push({ lease, key: name })
          }
        }
        const rows = await numbersOf(jobs.prefix, clock.ms)
        for (const [name, model] of models)
          expect(rows.get(name) ?? []).toEqual(model.leased(clock.ms).toSorted((a, b) => a - b))
      }
    }),
    runs(40),
  )
})

/** The numbers of the slots under a lease, by key. */
async function numbersOf(prefix: string, now: number): Promise<Map<string, number[]>> {
  const rows = await database.rows(
    `select key from rate_limit_durable where prefix = $1
      and round(date_part('epoch', last_refill) * 1000) > $2 order by key`,
    [prefix, now],
  )
  const numbers = new Map<string, number[]>()
  for (const { key } of rows) {
    const [name, number] = String(key).split('#') as [string, string]
    numbers.set(name, [...(numbers.get(name) ?? []), Number(number)])
  }
  return numbers
}
