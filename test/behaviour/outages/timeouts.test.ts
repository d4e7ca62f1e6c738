import { drizzle } from 'drizzle-orm/node-postgres'
import { afterEach, describe, expect, test } from 'vitest'
import { type Database, Ratelimit } from '../../../src/index.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { holdRows } from '../../support/locks.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(1000, '1h')

function limitOn(db: Database, prefix: string): Ratelimit {
  return new Ratelimit({ db, limiter, prefix, cleanupProbability: 0, connections: 1 })
}

/** 500 keys, some of which are slow. */
function keysWith(slow: readonly string[]): string[] {
  const keys = Array.from({ length: 500 - slow.length }, (_, i) => `key ${i}`)
  for (const [i, key] of slow.entries()) keys.splice(i * 317, 0, key)
  return keys
}

/** Of the keys at once, the slow ones fail, and each of the others is charged once. */
async function expectOnlySlowFail(
  ratelimit: Ratelimit,
  slow: readonly string[],
  used: number,
  sqlState: string,
): Promise<void> {
  const keys = keysWith(slow)
  const answers = await Promise.allSettled(keys.map((key) => ratelimit.limit(key)))
  for (const [i, answer] of answers.entries()) {
    expect(answer).toMatchObject(
      slow.includes(keys[i] ?? '')
        ? { status: 'rejected', reason: { code: 'DATABASE', sqlState } }
        : { status: 'fulfilled', value: { success: true, remaining: 1000 - used } },
    )
  }
}

afterEach(() => database.script('drop function if exists run_out() cascade'))

describe.each(['57014', '55P03'])('%s because of one key in a statement for many', (sqlState) => {
  test.each([[['slow 1']], [['slow 1', 'slow 2']]])('fails %j only', async (slow) => {
    // Postgres sends an error before it gives the rows back. Another connection may find them held then, and a
    // pool of node-postgres opens another one after each error.
    const { db, statements } = watch(hasServer() ? drizzle({ client: await database.client() }) : database.db)
    const ratelimit = limitOn(db, `${sqlState} ${slow.length}`)
    for (const key of keysWith(slow)) if (slow.includes(key)) await ratelimit.limit(key)
    await database.script(`
      create function run_out() returns trigger language plpgsql as $$ begin
        if new.key like 'slow%' then raise exception 'timeout' using errcode = '${sqlState}'; end if;
        return new; end $$;
      create trigger runs_out before update on rate_limit_ephemeral for each row execute function run_out();`)
    await expectOnlySlowFail(ratelimit, slow, 1, sqlState)
    const before = statements.length
    await expectOnlySlowFail(ratelimit, slow, 2, sqlState)
    // Each level of halves has one statement for each half: 17 or 19. Keys that were found held go alone.
    expect(statements.length - before).toBeLessThan(400)
  })

  test('fails all, after a few statements instead of one for each key', async () => {
    const failing = Object.assign(new Error('timeout'), { code: sqlState })
    const { db, statements } = watch(database.db, () => Promise.reject(failing))
    const ratelimit = limitOn(db, 'everybody')
    const answers = await Promise.allSettled(keysWith([]).map((key) => ratelimit.limit(key)))
    for (const answer of answers)
      expect(answer).toMatchObject({ status: 'rejected', reason: { code: 'DATABASE', sqlState } })
    expect(statements).toHaveLength(5)
  })
})

test.runIf(hasServer())(
  'a row that others hold fails its own call only, by the timeout of the session',
  async () => {
    const [row] = await database.rows('select current_database() as name')
    await database.script(`alter database "${row?.['name']}" set lock_timeout = '20ms'`)
    const ratelimit = limitOn(database.connect(8).db, 'held')
    const keys = keysWith([])
    await Promise.all(keys.map((key) => ratelimit.limit(key)))
    const holder = await holdRows(database, 'held', ['key 7'])
    await holder.query(
      `insert into rate_limit_ephemeral (prefix, key, expires_at) values ('held', 'new', now())`,
    )
    const answers = await Promise.allSettled([...keys, 'new'].map((key) => ratelimit.limit(key)))
    await holder.query('rollback')
    const failed = answers.flatMap((answer, i) =>
      answer.status === 'rejected' ? [[i, answer.reason.sqlState]] : [],
    )
    expect(failed).toEqual([
      [7, '55P03'],
      [500, '55P03'],
    ])
  },
)
