import type { Database } from '../kernel/database/database.ts'
import { ownLayer } from '../kernel/engine/own-layer.ts'
import { checkFunction } from '../kernel/options/checks.ts'
import type { LedgerLayer } from '../kernel/options/choices.ts'
import type { Settings } from '../kernel/options/settings.ts'
import type { GrantedCall, Ledger } from '../kernel/store/call.ts'
import type { WriteEntries } from '../kernel/store/entry.ts'
import { callsGranted, entryOf } from './entries.ts'
import { record } from './record.ts'

/**
 * Gives a function an entry for each charge, refund, reservation, settlement and grant, in the transaction that
 * makes it: what it writes with `tx` commits or rolls back together with the charge.
 *
 * Calls that share a statement hand out their entries together. Calls outside of your transactions then take
 * one of their own, so the driver needs interactive transactions. With your `tx` they take a savepoint. If the
 * function throws or rejects, nothing is charged, and the call rejects with `ENTRIES_FAILED`. It is not called
 * for denials and looks. Calls of a limiter in the function need its `tx`: on a single connection, they would
 * wait for the call itself. With `typeof db`, `tx` has the type of your database's transactions.
 *
 * @throws RatelimitError `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { pgTable, doublePrecision, text } from 'drizzle-orm/pg-core'
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { ledger } from 'drizzle-ratelimit/ledger'
 * import { db } from './app.ts'
 *
 * const charges = pgTable('charges', { key: text().notNull(), units: doublePrecision().notNull() })
 * const limiter = Ratelimit.fixedWindow(1000, '1d')
 * export const tokens = new Ratelimit({
 *   ...{ db, limiter, prefix: 'tokens', durable: true },
 *   use: [
 *     ledger<typeof db>((tx, entries) =>
 *       tx.insert(charges).values(entries.map(({ key, units }) => ({ key, units }))),
 *     ),
 *   ],
 * })
 * ```
 */
export function ledger<D extends Database = Database>(write: LedgerLayer<D>['write']): LedgerLayer<D> {
  checkFunction(write, 'The argument of ledger')
  const layer: LedgerLayer<D> = { name: 'ledger', write }
  return ownLayer(layer, { ledger: (settings) => ledgerOf(layer.write, settings) })
}

function ledgerOf(write: WriteEntries, { prefix, limiter }: Settings): Ledger {
  const recorded = (granted: GrantedCall) => {
    const entry = entryOf(granted, prefix, limiter)
    return entry ? [{ write, entry }] : []
  }
  return {
    ...{ write, recorded, record },
    recordCalls: (asked, recording) =>
      record({ ...recording, recordedBy: (answers) => callsGranted(asked, answers).flatMap(recorded) }),
  }
}
