import { test } from 'vitest'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { UNDO } from '../../support/ten.ts'
import { expectYearToBalance } from '../../support/year/billing-year.ts'

// A small one. test/faults/history/billing-year.test.ts has a thousand customers, and kills connections.

const database = useDatabase()

test('the ledger has each period once, with the sum of what was granted in it', async () => {
  await expectYearToBalance(database, database.db, {
    ...{ customers: 20, callsADay: 2, callers: hasServer() ? 4 : 1, seed: 7 },
    crash: () => Promise.reject(UNDO),
  })
}, 120_000)
