import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { expectYearToBalance } from '../../support/year/billing-year.ts'

const database = useDatabase()
const UNDO = new Error('undo')

/** `YEAR_CUSTOMERS=400` is what the gate has time for. */
const customers = Number(process.env['YEAR_CUSTOMERS'] ?? 1000)

test(`a year of ${customers} customers, with killed connections, is in the ledger to the unit`, async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 12 })
  // Drizzle does not listen to the errors of a client that is in use.
  pool.on('connect', (client) => client.on('error', () => {}))
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  let crashes = 0
  const seen = await expectYearToBalance(database, drizzle({ client: pool }), {
    ...{ customers, callsADay: Math.ceil(customers * 0.06), callers: 8, seed: 11 },
    crash: async (tx) => {
      if (crashes++ % 4 > 0) throw UNDO
      await tx.execute(sql`select pg_terminate_backend(pg_backend_pid())`)
      await sleep(1000)
    },
  })
  console.log(`The year of ${customers} customers:`, seen)
  // These happen a few times in a year of 150 customers, or by chance not at all.
  const rare = customers < 1000 ? ['corrected', 'late', 'voided'] : []
  const never = Object.entries(seen).filter(([, count]) => count === 0)
  expect(never.filter(([name]) => !rare.includes(name))).toEqual([])
}, 3_600_000)
