import { type SQL, sql } from 'drizzle-orm'
import type { Database } from './database.ts'
import { onlyRow } from './rows.ts'
import { execute } from './run.ts'

// Looks and `checkTables` ask whether rows may be hidden.

/** The role that asks. */
export const SELF: SQL = sql`(select oid from pg_roles where rolname = current_user)`

/** What the catalogs have in place of a role for everybody. */
export const EVERYBODY: SQL = sql.raw('0::oid')

/** Whether a policy `p` is for the role, or for one of its groups. */
export function isFor(role: SQL): SQL {
  return sql`exists (
    select from pg_catalog.unnest(p.polroles) as bound where bound = ${EVERYBODY} or pg_has_role(${role}, bound, 'USAGE'))`
}

/**
 * Whether row level security applies to this role, and not every row is shown: no policy shows all, or one
 * restricts them.
 */
export const HIDES_ROWS: SQL = sql`(pg_catalog.row_security_active(c.oid) and (
  not exists (
    select from pg_policy p where p.polrelid = c.oid and p.polpermissive and p.polcmd in ('r', '*')
      and coalesce(pg_get_expr(p.polqual, p.polrelid), 'true') = 'true' and ${isFor(SELF)})
  or exists (
    select from pg_policy p where p.polrelid = c.oid and not p.polpermissive and p.polcmd in ('r', '*')
      and coalesce(pg_get_expr(p.polqual, p.polrelid), 'true') <> 'true' and ${isFor(SELF)})))`

/**
 * Whether row level security may hide rows of a table from this role.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function hidesRows(db: Database, quoted: string): Promise<boolean> {
  const rows = await execute(
    db,
    sql`select ${HIDES_ROWS} as hidden from pg_class c where c.oid = to_regclass(${quoted}::text)::oid`,
  )
  return onlyRow(rows)?.['hidden'] === true
}
