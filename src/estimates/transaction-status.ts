import { sql } from 'drizzle-orm'
import type { Database } from '../kernel/database/database.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { execute } from '../kernel/database/run.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { runOn } from '../kernel/engine/work.ts'

/**
 * The id of a transaction. Other transactions can look up its status by the id. A savepoint has the id of its
 * transaction.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function transactionId(tx: Database): Promise<string> {
  const [row] = await uncharged(execute(tx, sql`select pg_catalog.pg_current_xact_id()::text as id`))
  return String(row?.['id'])
}

/**
 * What became of the transaction: `'in progress'`, `'aborted'` or `'committed'`. `'here'` if the database is
 * that transaction or a savepoint in it. Undefined if Postgres has forgotten it, or does not know it: the id
 * may come from a server that was replaced.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function transactionStatus(checker: Checker, at: At, id: string): Promise<string | undefined> {
  const status = sql`select case when id = pg_catalog.pg_current_xact_id_if_assigned() then 'here'
      when id < pg_catalog.pg_current_xact_id() then pg_catalog.pg_xact_status(id) end as status
    from (select ${id}::text::xid8 as id offset 0) as asked`
  const [row] = await runOn(checker, at, 'looks', ({ db }) => execute(db, status))
  const found = row?.['status']
  return typeof found === 'string' ? found : undefined
}
