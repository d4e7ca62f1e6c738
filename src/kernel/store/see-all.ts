import { onFirstUse } from '../base/once.ts'
import type { Connection } from '../database/connection.ts'
import type { Row } from '../database/run.ts'
import { quotedName } from '../database/table-name.ts'
import { RatelimitError } from '../errors.ts'
import { SECURED } from '../sql/look.ts'
import type { Table } from './store.ts'

const hiddenRows = /* @__PURE__ */ onFirstUse(() => import('../database/hidden-rows.ts'))

const MAX_AGE_MS = 10_000

const seenAt = new WeakMap<Table, number>()

/**
 * Refuses answers that may lack rows: a row that is hidden would look like a new key, with its whole limit.
 *
 * @throws RatelimitError `DATABASE` if row level security may hide rows from this role.
 */
export async function mustSeeAll(
  { db, isTransaction }: Connection,
  table: Table,
  rows: readonly Row[],
): Promise<void> {
  if (!rows.some((row) => row[SECURED] === true)) return
  // A transaction may have a role of its own.
  if (!isTransaction && performance.now() - (seenAt.get(table) ?? Number.NEGATIVE_INFINITY) < MAX_AGE_MS)
    return
  if (await (await hiddenRows()).hidesRows(db, quotedName(table.table))) {
    throw new RatelimitError(
      'DATABASE',
      'Row level security may hide rows of the rate limiter from this role, and a hidden row would look like an unused limit. ' +
        'Add a policy that shows the role all rows, `using (true)`, or connect as another role: see docs/privileges.md.',
    )
  }
  if (!isTransaction) seenAt.set(table, performance.now())
}
