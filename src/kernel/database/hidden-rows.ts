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
 * Whether row level security applies to this role, and some rows may be withheld from a command: no policy lets
 * it reach all, or one restricts it.
 *
 * @param command As in `pg_policy.polcmd`.
 */
export function isRestricted(command: SQL): SQL {
  const reachesAll = sql`(${command} = 'a' or ${isTrue(sql`p.polqual`)})
    and (${command} in ('r', 'd') or ${isTrue(sql`coalesce(p.polwithcheck, p.polqual)`)})`
  const binding = sql`from pg_policy p
    where p.polrelid = c.oid and p.polcmd in (${command}, '*') and ${isFor(SELF)}`
  return sql`(pg_catalog.row_security_active(c.oid) and (
    not exists (select ${binding} and p.polpermissive and ${reachesAll})
    or exists (select ${binding} and not p.polpermissive and not (${reachesAll}))))`
}

/** Whether a condition of the policy `p` is absent or `true`. */
function isTrue(condition: SQL): SQL {
  return sql`coalesce(pg_get_expr(${condition}, p.polrelid), 'true') = 'true'`
}

/** Whether not every row is shown to this role. */
export const HIDES_ROWS: SQL = /* @__PURE__ */ isRestricted(sql`'r'::"char"`)

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
