import { sql } from 'drizzle-orm'
import type { Database } from '../kernel/database/database.ts'
import { EVERYBODY, isFor, isRestricted, SELF } from '../kernel/database/hidden-rows.ts'
import { mustHave, onlyRow } from '../kernel/database/rows.ts'
import { execute } from '../kernel/database/run.ts'

/** A table as the catalogs describe it. */
export interface FoundTable {
  /** Whether the server is Neon: it has a setting that only Neon has. */
  readonly onNeon: boolean
  /** The tables that hold the rows: the table itself, or its partitions. */
  readonly stores: readonly FoundStore[]
  /** The quoted names of the tables that inherit from it. Partitions do not count. */
  readonly heirs: readonly string[]
  /**
   * The quoted roles that may change rows, here or in a partition. The owner and its members do not count, nor
   * do this role and its groups, unless it is the owner, nor do roles that no policy binds.
   */
  readonly writers: readonly string[]
  /** Whether row level security is on. */
  readonly isSecured: boolean
  /** The names of the policies. */
  readonly policies: readonly string[]
  /** The commands of this role that row level security may withhold rows from. */
  readonly restricted: readonly string[]
  readonly columns: readonly {
    readonly name: string
    /** With the collation, if by that different texts are equal. */
    readonly type: string
    readonly notNull: boolean
    readonly filled: boolean
  }[]
  readonly indexes: readonly FoundIndex[]
}

/** How the rows of a table or a partition are stored. */
export interface FoundStore {
  /** The quoted name of the partition. Null for the table itself. */
  readonly partition: string | null
  readonly persistence: 'u' | 'p' | 't'
  readonly options: readonly string[]
  /** The columns without statistics. */
  readonly unmeasured: readonly string[]
}

export interface FoundIndex {
  readonly name: string
  readonly primary: boolean
  readonly unique: boolean
  /** Whether it is valid, on all rows, and always checked at once. */
  readonly whole: boolean
  /** The constraint that it belongs to. */
  readonly constraint: string | null
  readonly columns: readonly string[]
}

/** Whether a policy for the role lets it change rows of \`s\`. */
const POLICY_LETS_WRITE = sql`exists (
  select from pg_policy p where p.polrelid = s.oid and p.polpermissive and p.polcmd <> 'r'
    and (grantee = ${EVERYBODY} and ${EVERYBODY} = any(p.polroles) or grantee <> ${EVERYBODY} and ${isFor(sql`grantee`)}))`

const WRITERS = sql`
  select coalesce(pg_catalog.jsonb_agg(distinct case grantee when ${EVERYBODY} then 'PUBLIC' else grantee::regrole::text end), '[]')
  from pg_class s
    join pg_roles o on o.oid = s.relowner
    cross join lateral (
      select (pg_catalog.aclexplode(s.relacl)).*
      union all select (pg_catalog.aclexplode(a.attacl)).* from pg_attribute a where a.attrelid = s.oid
    ) as granted
    left join pg_roles r on r.oid = grantee
  where (s.oid = c.oid or s.oid in (select relid::oid from pg_catalog.pg_partition_tree(c.oid)))
    and privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
    and (grantee = ${EVERYBODY} or not (r.rolsuper or r.rolbypassrls or pg_has_role(grantee, s.relowner, 'MEMBER')))
    and (grantee = ${EVERYBODY} or pg_has_role(${SELF}, s.relowner, 'MEMBER') or not pg_has_role(${SELF}, grantee, 'MEMBER'))
    and (not s.relrowsecurity or ${POLICY_LETS_WRITE})`

/**
 * Reads the catalogs as one JSON text, which no driver changes.
 *
 * @throws RatelimitError `DATABASE`, also if the driver gives the text another name.
 */
export async function readCatalogs(db: Database, quoted: string): Promise<FoundTable | undefined> {
  const rows = await execute(
    db,
    sql`select pg_catalog.jsonb_build_object(
        'onNeon', coalesce(current_setting('neon.timeline_id', true), '') <> '',
        'stores', (
          select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'partition', case when s.oid <> c.oid then s.oid::regclass::text end,
            'persistence', s.relpersistence,
            'options', coalesce(pg_catalog.to_jsonb(s.reloptions), '[]'),
            'unmeasured', (
              select coalesce(pg_catalog.jsonb_agg(a.attname), '[]')
              from pg_attribute a where a.attrelid = s.oid and a.attstattarget = 0)) order by s.relname), '[]')
          from pg_class s where s.relkind <> 'p' and (
            s.oid = c.oid or s.oid in (select relid::oid from pg_catalog.pg_partition_tree(c.oid)))),
        'heirs', (
          select coalesce(pg_catalog.jsonb_agg(i.inhrelid::regclass::text order by i.inhrelid::regclass::text), '[]')
          from pg_inherits i where i.inhparent = c.oid and c.relkind <> 'p'),
        'writers', (${WRITERS}),
        'isSecured', c.relrowsecurity,
        'policies', (
          select coalesce(pg_catalog.jsonb_agg(p.polname), '[]') from pg_policy p where p.polrelid = c.oid),
        'restricted', (
          select coalesce(pg_catalog.jsonb_agg(k.name), '[]')
          from (values ('SELECT', 'r'::"char"), ('INSERT', 'a'), ('UPDATE', 'w'), ('DELETE', 'd')) as k (name, command)
          where ${isRestricted(sql`k.command`)}),
        'columns', (
          select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'name', a.attname, 'type', pg_catalog.concat_ws(' COLLATE ', format_type(a.atttypid, a.atttypmod), l.collname),
            'notNull', a.attnotnull, 'filled', a.atthasdef or a.attidentity <> '')), '[]')
          from pg_attribute a left join pg_collation l on l.oid = a.attcollation and not l.collisdeterministic
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
        'indexes', (
          select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'name', ic.relname, 'primary', i.indisprimary, 'unique', i.indisunique,
            'whole', i.indisvalid and i.indpred is null and i.indimmediate,
            'constraint', (
              select k.conname from pg_constraint k where k.conindid = ic.oid and k.contype in ('p', 'u', 'x')),
            'columns', (
              select pg_catalog.jsonb_agg(pg_get_indexdef(ic.oid, k, true) order by k)
              from pg_catalog.generate_series(1, i.indnkeyatts::integer) as k))), '[]')
          from pg_index i join pg_class ic on ic.oid = i.indexrelid where i.indrelid = c.oid)
      )::text as found
      from pg_class c where c.oid = to_regclass(${quoted}::text)::oid`,
  )
  const row = onlyRow(rows)
  if (!row) return undefined
  const text = row['found']
  return JSON.parse(mustHave(typeof text === 'string' ? text : undefined))
}
