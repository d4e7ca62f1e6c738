import { expect, test } from 'vitest'
import { type Database, limitAll, Ratelimit } from '../../src/index.ts'
import { spend } from '../../src/quota/index.ts'
import { useDatabase } from '../support/databases.ts'
import { untilWaiting } from '../support/locks.ts'

const database = useDatabase()

function limitOn(db: Database, prefix: string): Ratelimit {
  return new Ratelimit({
    timeout: false,
    db,
    limiter: Ratelimit.fixedWindow(100, '1d'),
    prefix,
    cleanupProbability: 0,
  })
}

/** Charges keys of a prefix in a transaction; some may be given back. */
function charge(db: Database, prefix: string, rates: Readonly<Record<string, number>>): Promise<unknown> {
  const ratelimit = limitOn(db, prefix)
  return db.transaction((tx) =>
    limitAll(
      Object.entries(rates).map(([key, rate]) => ({ ratelimit, key, rate })),
      { tx: tx as Database },
    ),
  )
}

test('if the removal of needless rows fails, each charge stays charged once', async () => {
  await database.script(`create sequence removals;
    create function lose() returns trigger language plpgsql as $$ begin
      perform nextval('removals'); raise exception 'lost' using errcode = '40001'; end $$;
    create trigger lose before delete on rate_limit_ephemeral for each row execute function lose()`)
  const requests = ['first', 'second'].map((key) => ({ ratelimit: limitOn(database.db, 'removed'), key }))
  expect(await spend(requests, { rate: 2 })).toMatchObject({ success: true, granted: [2, 0] })
  expect(await requests[0]?.ratelimit.getRemaining('first')).toMatchObject({ used: 2 })
  expect(await database.rows('select last_value, is_called from removals')).toEqual([
    { last_value: '1', is_called: true },
  ])
  await database.script('drop trigger lose on rate_limit_ephemeral')
})

test.each([
  // A list that locked c before it has made a would wait for the other in a circle.
  ['a row that is missing', 'bb', { a: 1, bb: 1, c: 1 }, { a: 1, b: -1, c: 1 }],
  // A list that made its rows before it has locked b would, too.
  ['a row that is given back', 'd', { a: 1, b: -1, c: 1, d: 1 }, { b: 1, c: 1 }],
] as const)('lists lock in one order behind %s: no deadlock', async (prefix, held, waits, follows) => {
  const pools: readonly Database[] = [1, 2, 3].map(() => database.connect(1).db)
  const [holding, first, second] = pools as [Database, Database, Database]
  for (const key of ['b', 'c', held]) await limitOn(database.db, prefix).limit(key, { rate: 5 })
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const holder = holding.transaction(async (tx) => {
    await limitOn(holding, prefix).limit(held, { tx: tx as Database })
    await released
  })
  await untilHeld(prefix, held)
  const waiting = charge(first, prefix, waits)
  await untilWaiting(database, 1)
  const behind = charge(second, prefix, follows)
  await untilWaiting(database, 2)
  release()
  await Promise.all([holder, waiting, behind])
})

/** Waits until a transaction holds the row. */
async function untilHeld(prefix: string, key: string): Promise<void> {
  const free = `select 1 from rate_limit_ephemeral where prefix = '${prefix}' and key = '${key}' for update skip locked`
  await expect.poll(() => database.rows(free)).toEqual([])
}
