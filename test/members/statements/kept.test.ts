import { Members } from 'drizzle-ratelimit/members'
import { afterEach, expect, inject, test, vi } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { namesOn } from '../../support/prepared.ts'

// PGlite alone ignores a name.
const named = inject('driver') !== 'pglite'
const database = useDatabase()
afterEach(() => void vi.restoreAllMocks())

test('a connection keeps the statements, and those of a transaction of the caller it does not', async () => {
  const { db } = named ? database.connect(1) : database
  const devices = new Members({ db, prefix: 'kept', limit: 2, timeout: false, cleanupProbability: 0 })
  await db.transaction((tx) => devices.add('key', 'a', { tx }))
  expect(await namesOn(db)).toEqual([])
  for (const call of [devices.add('key', 'b'), devices.has('key', 'b'), devices.list('key')]) await call
  await devices.remove('key', 'b')
  // For a new member three, and one for each other call.
  expect((await namesOn(db)).length).toBeGreaterThanOrEqual(named ? 6 : 0)
})

// Another connection holds the key meanwhile, and PGlite has one.
test.runIf(named)('a table that grows while a call waits gives no member the place of another', async () => {
  const { db } = database
  const devices = new Members({ db, prefix: 'grown', limit: 2, timeout: false, cleanupProbability: 0 })
  const each = async (member: string) => (await devices.add('key', member)).success
  for (const member of ['a', 'b']) expect(await each(member)).toBe(true)
  const other = await database.client()
  // The size of the table is asked for each time.
  let ms = performance.now()
  vi.spyOn(performance, 'now').mockImplementation(() => {
    ms += 60_000
    return ms
  })
  for (const rows of [300, 3000, 30_000]) {
    await other.query('begin')
    await other.query("select from rate_limit_durable where prefix = 'grown' for update")
    const call = each('c')
    await untilWaiting(database)
    await other.query(
      'insert into rate_limit_durable (prefix, key, expires_at) ' +
        `select 'other', '${rows} ' || i, now() + interval '1 day' from generate_series(1, ${rows}) i`,
    )
    await other.query('commit')
    expect(await call).toBe(false)
    expect(await each('a')).toBe(true)
    expect((await devices.list('key')).map(({ member }) => member)).toEqual(['a', 'b'])
    expect([await devices.has('key', 'b'), await devices.has('key', 'c')]).toEqual([true, false])
  }
  expect([await devices.remove('key', 'c'), await devices.remove('key', 'b')]).toEqual([false, true])
  expect(await each('c')).toBe(true)
})
