import type { LimiterCall } from '../check/checker.ts'
import type { Connection } from '../database/connection.ts'
import { addUp } from './add-up.ts'
import { inLockOrder } from './list.ts'
import { makeRows, removeEmpty } from './send-list.ts'
import type { List } from './sending.ts'

/**
 * Locks the rows of the calls in the order of every list, so that statements in any order may follow in the
 * transaction. A missing row is inserted and removed again: until the transaction ends, others wait for it too.
 */
export async function lockRows(calls: readonly LimiterCall[], connection: Connection): Promise<void> {
  // There may be more than a list can have.
  const rows = new Map(calls.flatMap((each) => [...addUp([each]).values()]).map((row) => [row.row, row]))
  const list: List = {
    ...{
      connection,
      commit: 'as the session',
      groups: [],
      notes: new Map(),
      periodsMs: new Map(),
      hasMade: false,
    },
    rows: inLockOrder([...rows.values()]),
    onSend: () => {},
  }
  if ((await makeRows(list, true)) > 0) await removeEmpty(list)
}
