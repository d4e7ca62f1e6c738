import { Ratelimit } from 'drizzle-ratelimit'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { useDatabase } from '../../support/databases.ts'

// Users replace timers in tests of their own. These are the ones that no driver needs.

const database = useDatabase()
beforeEach(() => void vi.useFakeTimers({ toFake: ['Date', 'queueMicrotask'] }))
afterEach(() => void vi.useRealTimers())

test('a check does not wait for queueMicrotask, which Jest replaces by default', async () => {
  const limiter = Ratelimit.fixedWindow(1, '1h')
  const clock = () => new Date()
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'fake timers', clock })
  expect(await ratelimit.limit('user')).toMatchObject({ success: true })
  expect(await ratelimit.limit('user')).toMatchObject({ success: false, retryAfter: 3_600_000 })
  vi.setSystemTime(Date.now() + 3_600_000)
  expect(await ratelimit.limit('user')).toMatchObject({ success: true })
})
