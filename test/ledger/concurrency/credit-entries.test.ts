import { ledger } from 'drizzle-ratelimit/ledger'
import { beforeAll, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { createLedger, entriesOf, writeEntries } from '../../support/ledger.ts'
import { times } from '../../support/runs.ts'
import { deadlocks } from '../../support/statistics.ts'
import { undone } from '../../support/undone.ts'

// The entries of credits that end, by many connections at once.

const database = useDatabase()

let dbs: readonly Db[]
beforeAll(async () => {
  await createLedger(database)
  dbs = Array.from({ length: 8 }, () => database.connect(3).db)
})

test('the entries that are committed add up to what each grant has used, and to what is owed', async () => {
  const [prefix, rounds] = ['credit entries', times(4)]
  const all = dbs.map(
    (db) =>
      new Credits({
        ...{ db, prefix, dated: true, durable: true, cleanupProbability: 0, timeout: false },
        use: [ledger((tx, entries) => writeEntries(tx as never, entries))],
      }),
  )
  const [first] = all as [(typeof all)[number]]
  await first.grant('org', 300, { id: 'b', priority: 1 })
  await first.grant('org', 200, { id: 'a', priority: 2 })
  await Promise.all(
    all.map(async (credits, place) => {
      for (let i = 0; i < 5 * rounds; i++) {
        const id = `${place} ${i}`
        if (i % 5 === 0) await credits.grant('org', 10, { id: `more ${i}`, priority: 3 })
        else if (i % 5 === 1) await credits.limit('org', { rate: 7, force: i % 2 === 0 })
        else if (i % 5 === 2) await credits.limit('org', { rate: -4 })
        else if (i % 5 === 3) {
          await credits.reserve('org', { rate: 6, id, expires: '1h' })
          await credits.settle({ key: 'org', id }, (place * 3 + i) % 11).catch(() => {})
        } else {
          const db = dbs[place] as Db
          await undone(db, async (tx) => {
            await credits.limit('org', { rate: 5, tx })
          })
        }
      }
    }),
  )
  const entries = await entriesOf(database.db, prefix)
  const sumOf = (grant: string | undefined, isGrant: boolean) =>
    entries
      .filter((each) => each.grant === grant && (each.kind === 'grant') === isGrant)
      .reduce((sum, { units = 0 }) => sum + units, 0)
  const grants = await first.grants('org')
  expect(grants).toHaveLength(2 + rounds)
  for (const { id, used, amount } of grants)
    expect([id, sumOf(id, false), sumOf(id, true)]).toEqual([id, used, amount])
  const owed = (await first.getRemaining('org')).used - grants.reduce((sum, { used }) => sum + used, 0)
  expect(sumOf(undefined, false)).toBe(owed)
  expect(await deadlocks(database, [...dbs])).toBe(0)
})
