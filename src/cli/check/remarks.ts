import { sql } from 'drizzle-orm'
import type { RateLimitTable, RateLimitTables } from '../../../schema/index.ts'
import type { Database } from '../../kernel/database/database.ts'
import { HIDES_ROWS } from '../../kernel/database/hidden-rows.ts'
import { onlyRow } from '../../kernel/database/rows.ts'
import { execute } from '../../kernel/database/run.ts'
import { quote } from '../../kernel/database/table-name.ts'
import { printable } from '../../shared/readable.ts'
import type { TableDifference } from '../../tables/check-tables.ts'
import { tableShapeOf } from '../../tables/ddl.ts'

/** What the catalogs say about a table beyond its shape. */
interface Surroundings {
  readonly role: string
  /** The privileges that this role lacks. */
  readonly lacking: readonly string[]
  /** Null if it is not partitioned. */
  readonly partitionedBy: string | null
  /** Whether it has row level security that shows this role all rows. */
  readonly isOpen: boolean
  readonly triggers: readonly string[]
  readonly publications: readonly string[]
}

/** What is not wrong, but means something for the limits; and which privileges this role lacks. */
export async function remarksOn(
  db: Database,
  tables: RateLimitTables,
): Promise<{ readonly notes: readonly string[]; readonly lacking: readonly TableDifference[] }> {
  const notes: string[] = []
  const lacking: TableDifference[] = []
  for (const table of [tables.ephemeral, tables.durable]) {
    const { about, quoted } = tableShapeOf(table)
    const found = await surroundingsOf(db, table)
    if (!found) continue
    notes.push(...sentencesOf(found, about).map(printable))
    if (found.lacking.length === 0) continue
    const privileges = found.lacking.join(', ')
    lacking.push({
      message: printable(`${about} gives this role, ${found.role}, no ${privileges}: calls fail.`),
      sql: [`GRANT ${privileges} ON ${quoted} TO ${quote(found.role)}`],
    })
  }
  return { notes, lacking }
}

function sentencesOf(
  { partitionedBy, isOpen, triggers, publications, role }: Surroundings,
  about: string,
): string[] {
  const parted = `is partitioned by ${partitionedBy}: a key without a partition fails, so keep a default one.`
  const open = `has row level security, and ${role} sees all rows: is it the role of your application?`
  return [
    ...(partitionedBy === null ? [] : [parted]),
    ...triggers.map((name) => `has the trigger ${name}: each write waits for it, and fails if it fails.`),
    ...publications.map(
      (name) => `is in the publication ${name}: each charge is also sent to its subscribers.`,
    ),
    ...(isOpen ? [open] : []),
  ].map((sentence) => `${about} ${sentence}`)
}

async function surroundingsOf(db: Database, table: RateLimitTable): Promise<Surroundings | undefined> {
  const { quoted } = tableShapeOf(table)
  const rows = await execute(
    db,
    sql`with parts as (
        select to_regclass(${quoted}::text)::oid as oid
        union select relid::oid from pg_catalog.pg_partition_tree(to_regclass(${quoted}::text)))
      select pg_catalog.jsonb_build_object(
        'role', current_user,
        'lacking', (
          select coalesce(pg_catalog.jsonb_agg(p), '[]')
          from pg_catalog.unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) as p
          where not has_table_privilege(c.oid, p)),
        'partitionedBy', case when c.relkind = 'p' then pg_get_partkeydef(c.oid) end,
        'isOpen', c.relrowsecurity and not ${HIDES_ROWS},
        'triggers', (
          select coalesce(pg_catalog.jsonb_agg(distinct t.tgname), '[]') from pg_trigger t
          where t.tgrelid in (select oid from parts) and not t.tgisinternal and t.tgenabled <> 'D'),
        'publications', (
          select coalesce(pg_catalog.jsonb_agg(distinct p.pubname), '[]') from pg_publication_tables p
          where exists (
            select from parts join pg_class r on r.oid = parts.oid join pg_namespace n on n.oid = r.relnamespace
            where n.nspname = p.schemaname and r.relname = p.tablename))
      )::text as found
      from pg_class c where c.oid = to_regclass(${quoted}::text)::oid`,
  )
  const text = onlyRow(rows)?.['found']
  return typeof text === 'string' ? JSON.parse(text) : undefined
}
