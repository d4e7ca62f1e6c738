import { citus } from 'drizzle-ratelimit/citus'
import { beforeAll, describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type Layer, limitAll, Ratelimit, rateLimitTables, tableSql } from '../../../src/index.ts'
import { ownLayer } from '../../../src/kernel/engine/own-layer.ts'
import { plainTable } from '../../../src/kernel/store/plain-table.ts'
import { reserveAll, settle, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'

// Lists over a table that Citus has distributed and one that it has not. Credits are always in such a one.

const database = useDatabase()
const OWN = rateLimitTables({ ephemeral: 'own_ephemeral', durable: 'own_durable' })
const limiter = Ratelimit.fixedWindow(5, '1h')
/** Also where the tests of distributed tables give each limiter the store of Citus. */
const ONE_SERVER: Layer = ownLayer<Layer>({ name: 'one server' }, { table: plainTable })
const ONCE = { once: { id: 'event', for: '1h' } } as const
const NAME = { id: 'job', expires: '1h' } as const

beforeAll(async () => {
  for (const statement of tableSql(OWN)) await database.script(statement)
})

let limits = 0
function limitsOf() {
  const common = { db: database.db, prefix: `mixed ${++limits}`, cleanupProbability: 0 }
  const plain = new Ratelimit({ ...common, limiter, tables: OWN, use: [ONE_SERVER] })
  const spread = new Ratelimit({ ...common, limiter, use: [citus()] })
  const credits = new Credits({ ...common, dated: true, tables: OWN, use: [ONE_SERVER] })
  return { plain, spread, credits }
}

describe.each([
  ['plain', 'spread'],
  ['spread', 'plain'],
] as const)('the first one is %s', (first, second) => {
  test.each([first, second])('a denial by %s leaves the id free', async (denies) => {
    const limits = limitsOf()
    const requests = [first, second].map((name) => ({ ratelimit: limits[name], key: 'key' }))
    await limits[denies].limit('key', { rate: 5 })
    for (const _ of ['once', 'again']) {
      const answer = await limitAll(requests, ONCE)
      expect(answer).toMatchObject({ success: false, denied: [{ ratelimit: limits[denies] }] })
      expect(answer.repeated).toBeUndefined()
    }
    await limits[denies].resetUsedTokens('key')
    expect(await limitAll(requests, ONCE)).toMatchObject({ success: true, denied: [] })
    expect(await limitAll(requests, ONCE)).toMatchObject({ success: true, repeated: true })
    for (const name of [first, second] as const)
      expect(await limits[name].getRemaining('key')).toMatchObject({ used: 1 })
  })

  test('estimates under a name are charged, repeated and settled', async () => {
    const limits = limitsOf()
    const requests = [first, second].map((name) => ({ ratelimit: limits[name], key: 'key', rate: 3 }))
    const parts = requests.map(({ ratelimit, key }) => ({ ratelimit, key }))
    expect(await reserveAll(requests, NAME)).toMatchObject({ success: true })
    expect(await reserveAll(requests, NAME)).toMatchObject({ success: true, repeated: true })
    expect((await settle(parts, 'job', { actual: [1, 2] })).results).toMatchObject([
      { returned: 2 },
      { returned: 1 },
    ])
  })

  test('a rate under a name is shared and settled', async () => {
    const limits = limitsOf()
    const sources = [first, second].map((name) => ({ ratelimit: limits[name], key: 'key' }))
    expect(await spend(sources, { rate: 8, ...NAME })).toMatchObject({ granted: [5, 3] })
    expect(await settle(sources, 'job', { actual: 6 })).toMatchObject({ granted: [5, 1] })
  })
})

test('a distributed month and credits share a rate under a name', async () => {
  const { spread, credits } = limitsOf()
  await credits.grant('key', 9, { id: 'grant' })
  const sources = [
    { ratelimit: spread, key: 'key' },
    { ratelimit: credits, key: 'key' },
  ]
  expect(await spend(sources, { rate: 8, ...NAME })).toMatchObject({ granted: [5, 3] })
  expect(await settle(sources, 'job', { actual: 6 })).toMatchObject({ granted: [5, 1] })
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 8 })
})
