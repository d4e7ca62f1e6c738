import type { TestDatabase } from './databases.ts'

/**
 * Everything in a Postgres schema as the catalogs describe it, one line each: relations with their persistence
 * and storage parameters, columns in their order, constraints and indexes.
 */
export async function catalogsOf({ rows }: Pick<TestDatabase, 'rows'>, schema = 'public'): Promise<string[]> {
  const found = await rows(`
    with relations as (
      select c.* from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = '${schema}'
    )
    select format('relation %s %I, persistence %s, options %s',
      relkind, relname, relpersistence, (select array_agg(option order by option) from unnest(reloptions) as option)) as line
    from relations
    union all
    select format('column %I.%s %I %s, not null %s, default %s, collation %s, generated "%s", identity "%s"',
      relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull,
      (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = attrelid and adnum = attnum),
      attcollation::regcollation, attgenerated, attidentity)
    from relations join pg_attribute on attrelid = relations.oid
    where attnum > 0 and relkind = 'r'
    union all
    select format('constraint %I on %I: %s', conname, relname, pg_get_constraintdef(pg_constraint.oid))
    from relations join pg_constraint on conrelid = relations.oid
    union all
    select format('index %s, valid %s', pg_get_indexdef(indexrelid), indisvalid)
    from relations join pg_index on indrelid = relations.oid
    order by line`)
  return found.map(({ line }) => String(line))
}
