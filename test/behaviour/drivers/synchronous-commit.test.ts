import { sql } from 'drizzle-orm'
import { schedule } from 'drizzle-ratelimit/schedule'
import { describe, expect, test } from 'vitest'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { kinds } from '../../support/ten.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

const fixedWindow = Ratelimit.fixedWindow(5, '1m')

// What a commit waits for cannot be seen from outside. A trigger on the tables writes down the setting under
// which each row is written, which is the one that the commit of the same statement goes by.
async function writtenUnder(prefix: string): Promise<unknown[]> {
  const rows = await database.rows(`select setting from settings where prefix = '${prefix}'`)
  return rows.map(({ setting }) => setting)
}

async function writeDownSettings(): Promise<void> {
  await database.script(`
    create table if not exists settings (prefix text, setting text);
    create or replace function write_down() returns trigger language plpgsql as $$ begin
      insert into settings values (new.prefix, current_setting('synchronous_commit')); return null; end $$;
    create or replace trigger written after insert or update on rate_limit_durable
      for each row execute function write_down();
    create or replace trigger written after insert or update on rate_limit_ephemeral
      for each row execute function write_down();`)
}

describe.each(kinds)('$name', ({ name, of }) => {
  const { limiter } = of(5, '1m')

  test.each([
    [{}, 'on'],
    [{ durable: true }, 'off'],
    [{ durable: true, synchronousCommit: true }, 'on'],
  ] as const)(
    'with %o a statement of its own commits with synchronous_commit = %s',
    async (options, setting) => {
      await writeDownSettings()
      const { db, statements } = watch(database.db)
      const prefix = `${name} ${JSON.stringify(options)}`
      const ratelimit = new Ratelimit({ db, limiter, prefix, cleanupProbability: 0, ...options })
      await ratelimit.limit('key')
      await ratelimit.limit('key')
      await Promise.all(['one', 'other'].map((key) => ratelimit.limit(key)))
      expect(await writtenUnder(prefix)).toEqual([setting, setting, setting, setting])
      // New keys take two.
      expect(statements).toHaveLength(2 + 1 + 2)
      expect(await database.rows('show synchronous_commit')).toEqual([{ synchronous_commit: 'on' }])
    },
  )
})

test.each([
  [{ durable: true }, 'off'],
  [{ durable: true, synchronousCommit: true }, 'on'],
] as const)(
  'with %o lists commit with synchronous_commit = %s, alone and many at once',
  async (options, setting) => {
    await writeDownSettings()
    const prefix = `lists ${setting}`
    const { db } = database
    const ratelimit = new Ratelimit({ db, limiter: fixedWindow, prefix, cleanupProbability: 0, ...options })
    const list = (...keys: string[]) => limitAll(keys.map((key) => ({ ratelimit, key })))
    const all = () => Promise.all([list('a', 'b'), list('c', 'd'), list('e', 'f'), list('g', 'h')])
    await list('a', 'b')
    await all()
    await all()
    // New rows may be written twice.
    expect([...new Set(await writtenUnder(prefix))]).toEqual([setting])
  },
)

test.each([
  [{ durable: true }, 'off'],
  [{ durable: true, synchronousCommit: true }, 'on'],
] as const)(
  'with %o a start with an id, and its cancel, commit with synchronous_commit = %s',
  async (options, setting) => {
    await writeDownSettings()
    const prefix = `starts ${setting}`
    const ids = `drizzle-ratelimit/once/${prefix}`
    const limiter = Ratelimit.gcra(10, '1h', { burst: 1 })
    const ratelimit = new Ratelimit({ db: database.db, limiter, prefix, cleanupProbability: 0, ...options })
    const begin = async (tx?: Database) => {
      const once = { id: `event ${String(tx === undefined)}`, for: '1d' } as const
      const turn = allowed(await schedule(ratelimit, 'key', { within: '10h', once, tx }))
      return turn
    }
    await ratelimit.limit('key')
    await begin()
    expect((await writtenUnder(ids)).at(-1)).toBe(setting)
    const turn = await begin()
    expect(await turn.cancel()).toBe(true)
    expect((await writtenUnder(ids)).at(-1)).toBe(setting)
    await database.db.transaction(async (tx) => {
      const own = await begin(tx)
      await own.cancel({ tx })
    })
    expect((await writtenUnder(ids)).slice(-2)).toEqual(['on', 'on'])
  },
)

test('synchronousCommit waits even where the session does not by itself', async () => {
  await writeDownSettings()
  const options = { limiter: fixedWindow, prefix: 'session', cleanupProbability: 0 }
  await database.db.transaction(async (tx) => {
    await tx.execute('set local synchronous_commit = off')
    // The limiter takes it for a database with a session of its own.
    const { rollback, ...db } = watch(tx).db
    await new Ratelimit({ ...options, db, durable: true, synchronousCommit: true }).limit('key')
  })
  expect(await writtenUnder('session')).toEqual(['on'])
})

test.each([{ durable: true }, { durable: true, synchronousCommit: true }] as const)(
  'with %o the session keeps its own settings',
  async (own) => {
    // What a driver's session is set to is seen on its connection.
    const db = hasServer() ? database.connect(1).db : database.db
    const settings = async () => {
      const answer: unknown = await db.execute(
        sql`select name || '=' || setting as one from pg_settings where name in ('synchronous_commit', 'lock_timeout')`,
      )
      return (JSON.stringify(answer).match(/(synchronous_commit|lock_timeout)=\w+/g) ?? []).toSorted()
    }
    const before = await settings()
    expect(before).toHaveLength(2)
    const prefix = `keeps ${JSON.stringify(own)}`
    const ratelimit = new Ratelimit({ db, limiter: fixedWindow, prefix, cleanupProbability: 0, ...own })
    for (let times = 0; times < 2; times++) {
      await Promise.all(['one', 'other'].map((key) => ratelimit.limit(key)))
      await ratelimit.limit('one')
      await limitAll([{ ratelimit, key: 'one' }])
      expect(await settings()).toEqual(before)
    }
  },
)

test("in a caller's transaction the caller's setting stays, with any option", async () => {
  await writeDownSettings()
  const options = { db: database.db, limiter: fixedWindow, prefix: 'joined' }
  await database.db.transaction(async (tx) => {
    await new Ratelimit({ ...options, durable: true }).limit('key', { tx })
    await tx.execute('set local synchronous_commit = local')
    await new Ratelimit({ ...options, durable: true, synchronousCommit: true }).limit('key', { tx })
  })
  expect(await writtenUnder('joined')).toEqual(['on', 'local'])
})
