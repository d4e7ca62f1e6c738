import { expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'

const database = useDatabase()

test('start times of 12 processes are spaced exactly, in the order of their answers', async () => {
  const limiter = Ratelimit.gcra(100, '1s', { burst: 1 })
  const processes = Array.from(
    { length: 12 },
    () =>
      new Ratelimit({ db: database.connect(1).db, limiter, prefix: 'start times', cleanupProbability: 0 }),
  )
  const turns = await Promise.all(
    processes.map(async (ratelimit) => {
      const own: number[] = []
      for (let i = 0; i < 20; i++) {
        const turn = await ratelimit.schedule('key', { within: '1h' })
        if (turn.success) own.push(turn.startsAt)
      }
      // A later call of one process starts later.
      expect(own).toEqual(own.toSorted((a, b) => a - b))
      return own
    }),
  )
  const starts = turns.flat().toSorted((a, b) => a - b)
  expect(starts).toHaveLength(240)
  const gaps = starts.slice(1).map((start, i) => start - (starts[i] as number))
  expect(Math.min(...gaps)).toBe(10)
})

test('cancels at the same time as calls let no two calls start together', async () => {
  const limiter = Ratelimit.gcra(100, '1s', { burst: 1 })
  const kept: number[] = []
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      const ratelimit = new Ratelimit({ db: database.connect(1).db, limiter, prefix: 'cancels' })
      for (let i = 0; i < 20; i++) {
        const turn = await ratelimit.schedule('key', { within: '1h' })
        if (!turn.success) continue
        if (Math.random() < 0.5) await turn.cancel()
        else kept.push(turn.startsAt)
      }
    }),
  )
  const starts = kept.toSorted((a, b) => a - b)
  const gaps = starts.slice(1).map((start, i) => start - (starts[i] as number))
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(10)
})
