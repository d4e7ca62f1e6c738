import { afterAll, expect, test, vi } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'

const database = useDatabase()

vi.mock('../../../src/kernel/store/sweep.ts', () => {
  throw new Error('The deployment has removed the file.')
})
afterAll(() => void vi.doUnmock('../../../src/kernel/store/sweep.ts'))

test('a sweep whose code cannot be loaded changes no answer and does not end the process', async () => {
  const handed: Promise<unknown>[] = []
  const ratelimit = new Ratelimit({
    ...{ db: database.db, limiter: Ratelimit.fixedWindow(5, '1h'), prefix: 'swept' },
    ...{ cleanupProbability: 1, waitUntil: (work) => void handed.push(work) },
  })
  expect(await ratelimit.limit('key')).toMatchObject({ success: true })
  await vi.waitFor(() => expect(handed).toHaveLength(1), PATIENTLY)
  expect(await Promise.all(handed)).toEqual([undefined])
})
