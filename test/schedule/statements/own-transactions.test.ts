import { sql } from 'drizzle-orm'
import { Ratelimit } from 'drizzle-ratelimit'
import { schedule } from 'drizzle-ratelimit/schedule'
import { expect, inject, test } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { namesOn } from '../../support/prepared.ts'

// A start with `once` takes a transaction of the package's own.

const driver = inject('driver')
// PGlite alone ignores a name.
const named = driver !== 'pglite'
const database = useDatabase()

function onOneConnection(prefix: string) {
  const { db } = named ? database.connect(1) : database
  const limiter = Ratelimit.tokenBucket(1, '1s', 100)
  const ratelimit = new Ratelimit({ db, prefix, limiter, timeout: false, cleanupProbability: 0 })
  const start = (id: string, tx?: typeof db) =>
    schedule(ratelimit, 'key', { once: { id, for: '1d' }, within: '1m', ...(tx && { tx }) })
  return { db, ratelimit, start }
}

test('its connection keeps its statements, and those of a transaction of the caller it does not', async () => {
  const { db, start } = onOneConnection('own transactions')
  await db.transaction((tx) => start('a', tx))
  expect(await namesOn(db)).toEqual([])
  await start('b')
  expect((await namesOn(db)).length).toBeGreaterThan(named ? 1 : -1)
})

// postgres.js prepares COMMIT too. If its name is gone, that rolls back, and postgres.js reports a commit.
test.runIf(driver === 'node-postgres')('it runs again if a pooler refuses a kept statement', async () => {
  const { db, ratelimit, start } = onOneConnection('own refused')
  for (const id of ['a', 'b', 'c']) await start(id)
  // The driver believes that the connection still has them.
  await db.execute(sql`deallocate all`)
  expect(await start('d')).toMatchObject({ success: true })
  expect(await start('d')).toMatchObject({ success: true, repeated: true })
  expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 4 })
})

test.runIf(driver === 'node-postgres')('it runs again if a column has another type', async () => {
  const { db, ratelimit, start } = onOneConnection('own outdated')
  for (const id of ['a', 'b', 'c']) await start(id)
  await db.execute(sql`alter table rate_limit_ephemeral alter column tokens type real`)
  try {
    expect(await start('d')).toMatchObject({ success: true })
  } finally {
    await db.execute(sql`alter table rate_limit_ephemeral alter column tokens type double precision`)
  }
  expect(await start('d')).toMatchObject({ success: true, repeated: true })
  expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 4 })
})
