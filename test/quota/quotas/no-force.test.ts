import { expect, test } from 'vitest'
import { Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { type ReserveRequest, reserveAll } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { watch } from '../../support/watch.ts'

// TypeScript refuses `force` here, but not if it comes by way of a variable.

const database = useDatabase()

test.each<[string, (ratelimit: Ratelimit, options: { force: boolean; rate: number }) => Promise<unknown>]>([
  ['reserve', (ratelimit, options) => ratelimit.reserve('key', options)],
  [
    'reserveAll',
    (ratelimit, options) => {
      const request: ReserveRequest = { ratelimit, key: 'key', ...options }
      return reserveAll([request])
    },
  ],
  ['blockUntilReady', (ratelimit, options) => ratelimit.blockUntilReady('key', 0, options)],
])('%s takes no force', async (_, call) => {
  const { db, statements } = watch(database.db)
  const config: RatelimitConfig = { db, limiter: Ratelimit.fixedWindow(10, '1h'), prefix: 'no force' }
  const forced = () => call(new Ratelimit(config), { force: true, rate: 20 })
  expect(await errorOf(forced)).toMatchObject({ code: 'INVALID_OPTION' })
  expect(statements).toEqual([])
})
