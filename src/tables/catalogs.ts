import { sql } from 'drizzle-orm'
import type { Database } from '../database/database.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { execute } from '../database/run.ts'

/** A table as the catalogs describe it. */
export interface Found {
  readonly persistence: 'u' | 'p' | 't'
  /** Whether the server is Neon: it has a setting that only Neon has. */
  readonly onNeon: boolean
  readonly options: readonly string[]
  readonly columns: readonly {
    readonly name: string
    readonly type: string
    readonly notNull: boolean
    readonly filled: boolean
    readonly statistics: number | null
  }[]
  readonly indexes: readonly FoundIndex[]
}

export interface FoundIndex {
  readonly name: string
  readonly primary: boolean
  readonly unique: boolean
  /** Whether it is valid and on all rows. */
  readonly whole: boolean
  /** The constraint that it belongs to. */
  readonly constraint: string | null
  readonly columns: readonly string[]
}

/**
 * Reads the catalogs as one JSON text, which no driver changes.
 *
 * @throws RatelimitError `DATABASE`, also if the driver gives the text another name.
 */
export async function readCatalogs(db: Database, quoted: string): Promise<Found | undefined> {
  const rows = await execute(
    db,
    sql`select pg_catalog.jsonb_build_object(
        'persistence', c.relpersistence,
        'onNeon', coalesce(current_setting('neon.timeline_id', true), '') <> '',
        'options', coalesce(pg_catalog.to_jsonb(c.reloptions), '[]'),
        'columns', (
          select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'notNull', a.attnotnull,
            'filled', a.atthasdef or a.attidentity <> '', 'statistics', a.attstattarget)), '[]')
          from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
        'indexes', (
          select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'name', ic.relname, 'primary', i.indisprimary, 'unique', i.indisunique,
            'whole', i.indisvalid and i.indpred is null,
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
