import { expect, test } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { keysNamed } from '../support/keys.ts'
import { kinds } from '../support/ten.ts'

const database = useDatabase()

/** Calls of each kind, on connections that keep their statements. */
function callsOn(ratelimit: Ratelimit): Promise<unknown[]>[] {
  return [
    Promise.all([ratelimit.limit('key')]),
    Promise.all(keysNamed('key', 8).map((key) => ratelimit.limit(key))),
    Promise.all([ratelimit.getRemaining('key 1')]),
    Promise.all([limitAll(['key 1', 'key 2'].map((key) => ({ ratelimit, key })))]),
  ]
}

// What the column is made, and what it was.
const CHANGES = [
  ['tokens type real', 'tokens type float8'],
  ['tokens type numeric', 'tokens type float8'],
  ['count type integer', 'count type bigint'],
  ['prev_count type numeric', 'prev_count type bigint'],
  ['window_start type timestamptz(3)', 'window_start type timestamptz'],
  ['last_refill type timestamptz(3)', 'last_refill type timestamptz'],
  ['key type varchar(99)', 'key type text'],
  ['prefix type varchar(99)', 'prefix type text'],
].flat()

test.each(kinds)(
  'a column that changes its type next to warm connections fails no call: $name',
  async ({ name, of }) => {
    const { db } = database.connect(4)
    const ratelimit = new Ratelimit({
      timeout: false,
      db,
      limiter: of(1_000, '1h').limiter,
      prefix: name,
      cleanupProbability: 0,
    })
    let rounds = 0
    const round = async () => {
      rounds++
      for (const calls of callsOn(ratelimit)) await calls
    }
    for (let i = 0; i < 8; i++) await round()
    for (const change of CHANGES) {
      await database.script(`alter table rate_limit_ephemeral alter ${change}`)
      for (let i = 0; i < 2; i++) await round()
    }
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 1_000 - rounds })
    expect(await ratelimit.getRemaining('key 1')).toMatchObject({ remaining: 1_000 - 2 * rounds })
  },
)

test('a column that changes its type next to warm connections fails no call: credits', async () => {
  const { db } = database.connect(4)
  const credits = new Credits({ timeout: false, db, dated: true, prefix: 'credits', cleanupProbability: 0 })
  let rounds = 0
  const round = async () => {
    rounds++
    await credits.grant('key', 5, { id: `${rounds}` })
    await Promise.all([1, 2].map(() => credits.limit('key')))
  }
  for (let i = 0; i < 8; i++) await round()
  for (const change of CHANGES) {
    await database.script(`alter table rate_limit_ephemeral alter ${change}`)
    for (let i = 0; i < 2; i++) await Promise.all([round(), round()])
  }
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 3 * rounds })
})
