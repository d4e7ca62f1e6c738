import { expect, test } from 'vitest'
import type { Database } from '../../../src/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

// A slot is no charge, so its errors speak of slots.

const database = useDatabase()
const slotsOn = (db: Database, timeout?: number) =>
  new Semaphore({
    ...{ db, limit: 1, lease: '1m', prefix: 'slots', cleanupProbability: 0 },
    ...(timeout ? { timeout } : {}),
  })

function refuse(): never {
  throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
}

test('acquire on a server that cannot be reached: no slot was taken', async () => {
  const slots = slotsOn(watch(database.db, refuse).db)
  const joined = database.db.transaction((tx) => slots.acquire('key', { tx: watch(tx, refuse).db }))
  for (const acquired of [slots.acquire('key'), slots.acquire('key', { timeout: '1s' }), joined]) {
    await expect(acquired).rejects.toMatchObject({
      code: 'UNREACHABLE',
      message: expect.stringMatching(/^(?!.*charge).*The call had no effect\.$/s),
    })
  }
})

test('a release on a server that cannot be reached: the lease was not changed', async () => {
  let isAway = false
  const slots = slotsOn(watch(database.db, () => isAway && refuse()).db)
  const lease = await slots.acquire('key')
  isAway = true
  if (!lease.success) throw new Error('denied')
  await expect(lease.release()).rejects.toMatchObject({
    code: 'UNREACHABLE',
    message: expect.stringMatching(/^(?!.*charge).*The call had no effect\.$/s),
  })
})
