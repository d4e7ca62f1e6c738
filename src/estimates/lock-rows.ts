import type { Connection } from '../kernel/database/connection.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { MAX_COUNT } from '../kernel/limits/limiter.ts'
import { addUp } from '../kernel/lists/add-up.ts'
import { rowsInLockOrder } from '../kernel/lists/sending.ts'
import { insertEmpty, removeEmpty } from '../kernel/store/empty-rows.ts'
import { isPaidByFunds } from './funds.ts'
import { inTurn } from './in-turn.ts'
import type { Charged } from './settlement.ts'

/**
 * Locks the limits and the rows of estimates in the order of every list, for statements that need only some of
 * them.
 */
export async function lockAll(
  charged: readonly Charged[],
  closings: readonly LimiterCall[],
  connection: Connection,
): Promise<void> {
  // The statements for one limit have that order.
  if (charged.length < 2) return
  const limits = await inTurn(charged, async ({ each, parts }): Promise<readonly LimiterCall[]> => {
    if (!isPaidByFunds(each)) return [taken(each)]
    const { checker, funds } = each
    const { rows } = await funds.take(WHOLE_COUNT, connection.db)
    return [...rows, ...parts.map((part) => taken({ checker, call: funds.payerOf(part) }))]
  })
  await lockRows([...limits.flat(), ...closings], connection)
}

const WHOLE_COUNT = { rate: MAX_COUNT, least: MAX_COUNT, lacking: 'owed' } as const

/** A call that needs the row. */
function taken({ checker, call }: LimiterCall): LimiterCall {
  return { checker, call: { ...call, rate: 1, purpose: 'take' } }
}

/**
 * Locks the rows of the calls in the order of every list, so that statements in any order may follow in the
 * transaction. A missing row is inserted and removed again: until the transaction ends, others wait for it too.
 */
async function lockRows(calls: readonly LimiterCall[], connection: Connection): Promise<void> {
  // There may be more than a list can have.
  const named = new Map(calls.flatMap((each) => [...addUp([each]).values()]).map((row) => [row.row, row]))
  const rows = rowsInLockOrder([...named.values()])
  const made = await insertEmpty(rows, connection, 'as the session', true)
  if (made > 0) await removeEmpty(rows, connection)
}
