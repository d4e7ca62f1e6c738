import { expiredEstimatesStatement } from '../estimates/sql/estimates.ts'
import type { Database } from '../kernel/database/database.ts'
import { type Row, runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { Table } from '../kernel/store/store.ts'

/**
 * Finds open estimates whose end has come, and locks those that no other transaction has locked. A store
 * of several servers locks rows of one shard at a time, so there it finds them first.
 */
export async function lockExpired(
  { table, statements, store }: Table,
  tx: Database,
  values: { readonly prefix: string; readonly clock: number | null; readonly size: number },
): Promise<readonly Row[]> {
  const { steps } = store
  const statement = kept(statements, 'expired', () => expiredEstimatesStatement(table, !steps))
  const found = await runOnce({ db: tx }, statement, values)
  if (!steps) return found
  const keys = found.map((row) => String(row['key']))
  const free = await steps.lockFree(tx, values.prefix, keys)
  return found.filter((row) => free.has(String(row['key'])))
}
