import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()

test('one signal ends many calls that wait, and Node warns of no listeners', async () => {
  const warnings: Error[] = []
  const listen = (warning: Error) => warnings.push(warning)
  process.on('warning', listen)
  const common = { db: database.db, cleanupProbability: 0 }
  const api = new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: 'one signal' })
  const exports = new Ratelimit({
    ...common,
    limiter: Ratelimit.concurrency(1, { lease: '1h' }),
    prefix: 'one signal for leases',
  })
  await api.limit('key')
  await exports.acquire('key')
  const controller = new AbortController()
  const { signal } = controller
  const waiting = Array.from({ length: 40 }, (_, i) =>
    i % 2 === 0
      ? api.blockUntilReady('key', '2h', { signal })
      : exports.acquire('key', { timeout: '2h', signal }),
  )
  const ended = Promise.allSettled(waiting)
  // By then all have been denied, and wait.
  await new Promise((resolve) => setTimeout(resolve, 300))
  expect(getEventListeners(signal, 'abort').length).toBeLessThanOrEqual(10)
  const reason = new Error('enough')
  controller.abort(reason)
  expect(await ended).toEqual(waiting.map(() => ({ status: 'rejected', reason })))
  expect(getEventListeners(signal, 'abort')).toEqual([])
  process.off('warning', listen)
  expect(warnings).toEqual([])
})
