import diagnostics from 'node:diagnostics_channel'
import { getEventListeners } from 'node:events'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'

const database = useDatabase()

test('one signal ends many calls that wait, and Node warns of no listeners', async () => {
  const warnings: string[] = []
  const listen = ({ name }: Error) => void warnings.push(name)
  process.on('warning', listen)
  onTestFinished(() => void process.off('warning', listen))
  const common = { db: database.db, cleanupProbability: 0 }
  const api = new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: 'one signal' })
  const exports = new Semaphore({ ...common, limit: 1, lease: '1h', prefix: 'one signal for leases' })
  await api.limit('key')
  await exports.acquire('key')
  const controller = new AbortController()
  const { signal } = controller
  let begun = 0
  const count = () => void begun++
  diagnostics.subscribe('drizzle-ratelimit:wait', count)
  onTestFinished(() => void diagnostics.unsubscribe('drizzle-ratelimit:wait', count))
  const waiting = Array.from({ length: 40 }, (_, i) =>
    i % 2 === 0
      ? api.blockUntilReady('key', '2h', { signal })
      : exports.acquire('key', { timeout: '2h', signal }),
  )
  const ended = Promise.allSettled(waiting)
  await vi.waitFor(() => expect(begun).toBe(40), PATIENTLY)
  expect(getEventListeners(signal, 'abort').length).toBeLessThanOrEqual(10)
  const reason = new Error('enough')
  controller.abort(reason)
  expect(await ended).toEqual(waiting.map(() => ({ status: 'rejected', reason })))
  expect(getEventListeners(signal, 'abort')).toEqual([])
  expect(warnings).not.toContain('MaxListenersExceededWarning')
})
