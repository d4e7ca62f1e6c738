import { expect, test, vi } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { lockout } from '../../../src/lockout/index.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()

test('unblock of another copy of the package ends what the limiter remembers', async () => {
  const limiter = lockout(3, '15m', { block: '1h' })
  const logins = new Ratelimit({ db: database.db, limiter, prefix: 'copies', inMemoryBlock: true })
  await logins.limit('ada', { rate: 3 })
  expect(await logins.limit('ada')).toMatchObject({ success: false })
  vi.resetModules()
  const { unblock } = await import('../../../src/lockout/index.ts')
  await unblock(logins, 'ada')
  expect(await logins.limit('ada')).toMatchObject({ success: true })
})
