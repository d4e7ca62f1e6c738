import { expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { tell } from '../../support/happened.ts'
import { usePool } from './pool.ts'

// One client that calls as often as it can.

const opened = usePool()

test('a flood of one key gets exactly its limit', async () => {
  const limiter = Ratelimit.fixedWindow(5, '1h')
  const api = new Ratelimit({ db: opened.db, limiter, prefix: 'flood' })
  const calls = await Promise.allSettled(Array.from({ length: 5_000 }, () => api.limit('one')))
  const answers = calls.filter((call) => call.status === 'fulfilled').map(({ value }) => value)
  expect(answers.filter(({ success }) => success).length).toBe(5)
  // More than a thousand of one key do not wait.
  const refused = calls.filter((call) => call.status === 'rejected').map(({ reason }) => reason.code)
  expect(new Set(refused)).toEqual(new Set(['OVERLOADED']))
  tell('a flood of one key', 'denied', answers.length - 5)
  tell('a flood of one key', 'OVERLOADED', refused.length)
})
