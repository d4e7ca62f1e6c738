import { expect } from 'vitest'
import type { Database } from '../../../src/index.ts'
import type { TestDatabase } from '../databases.ts'
import { creditsOf } from './credits.ts'
import { expectLedgerToBalance } from './ledger.ts'
import { GRACE, quotasOf } from './quotas.ts'
import { spendingOf } from './spending.ts'
import { DAY_MS, FIRST, worldOf, type Year } from './world.ts'

/**
 * A year of customers who call at random, each call in a transaction that also writes what was granted and the
 * period that it has ended. Closers run at the same time, plans change, and some of all transactions crash
 * before their commit. At its end, what was written is what the limiters have counted, to the unit.
 *
 * @returns How often what may happen has happened.
 */
export async function expectYearToBalance(
  database: TestDatabase,
  db: Database,
  year: Year,
): Promise<Readonly<Record<string, number>>> {
  const world = worldOf(database, db, year)
  const { clock, whole } = world
  const quotas = await quotasOf(world, year.customers)
  const credits = await creditsOf(world, year.customers)
  const spending = await spendingOf(world, year.customers)
  const kinds = [quotas, quotas, credits, spending]
  for (let day = 0; day < 365; day++) {
    const callers = Array.from({ length: year.callers }, async (_, caller) => {
      for (let i = caller; i < year.callsADay; i += year.callers) {
        await kinds[whole(kinds.length)]?.call()
      }
    })
    const closers =
      day % 9 === 0
        ? [quotas.close(GRACE), quotas.close(), quotas.close(GRACE), quotas.settleExpired(), spending.close()]
        : []
    await Promise.all([...callers, ...closers])
    if (day % 60 === 0) await credits.readLost()
    // Injected clocks do not go on by themselves. A change ends its period at a time of its own.
    clock.ms = FIRST + (day + 1) * DAY_MS + whole(DAY_MS / 2)
    await quotas.changePlans()
    clock.advance(1 + whole(DAY_MS / 3))
  }
  clock.advance(2 * 366 * DAY_MS)
  await quotas.close()
  await quotas.close()
  await spending.close()
  const left = await database.rows(
    "select key from rate_limit_durable where prefix in ('year', 'year-month', 'year-team') and count > 0",
  )
  expect(left).toEqual([])
  const { lines, units } = await expectLedgerToBalance(database, quotas)
  await credits.readLost()
  await credits.expectToBalance()
  await spending.expectToBalance()
  return { ...world.seen, lines, units }
}
