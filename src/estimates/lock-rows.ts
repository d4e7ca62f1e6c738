import type { Connection } from '../kernel/database/connection.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { addUp } from '../kernel/lists/add-up.ts'
import { rowsInLockOrder } from '../kernel/lists/sending.ts'
import { insertEmpty, removeEmpty } from '../kernel/store/empty-rows.ts'

/**
 * Locks the rows of the calls in the order of every list, so that statements in any order may follow in the
 * transaction. A missing row is inserted and removed again: until the transaction ends, others wait for it too.
 */
export async function lockRows(calls: readonly LimiterCall[], connection: Connection): Promise<void> {
  // There may be more than a list can have.
  const named = new Map(calls.flatMap((each) => [...addUp([each]).values()]).map((row) => [row.row, row]))
  const rows = rowsInLockOrder([...named.values()])
  const made = await insertEmpty(rows, connection, 'as the session', true)
  if (made > 0) await removeEmpty(rows, connection)
}
