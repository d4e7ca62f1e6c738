import { sql } from 'drizzle-orm'
import {
  type RateLimitTable,
  type RateLimitTables,
  rateLimitDurable,
  rateLimitEphemeral,
} from '../../schema/index.ts'
import type { Database } from './database.ts'
import { STORAGE_PARAMETERS, shapeOf } from './ddl.ts'
import { execute } from './run.ts'

/**
 * Compares the tables in the database with what the limiter expects, and says every difference in words.
 *
 * @returns One sentence a difference; empty when all is well.
 * @throws RatelimitError `DATABASE` when the catalogs cannot be read.
 *
 * @example
 * ```ts
 * import { checkTables } from 'drizzle-ratelimit'
 * import { drizzle } from 'drizzle-orm/node-postgres'
 *
 * const db = drizzle(process.env.DATABASE_URL!)
 * for (const difference of await checkTables(db)) console.warn(difference)
 * ```
 */
export async function checkTables(
  db: Database,
  tables: RateLimitTables = { ephemeral: rateLimitEphemeral, durable: rateLimitDurable },
): Promise<string[]> {
  return [...(await differences(db, tables.ephemeral, 'u')), ...(await differences(db, tables.durable, 'p'))]
}

/** What the catalogs say of a table. */
interface Found {
  readonly persistence: 'u' | 'p' | 't'
  readonly options: readonly string[]
  readonly columns: readonly {
    readonly name: string
    readonly type: string
    readonly notNull: boolean
    readonly hasDefault: boolean
  }[]
  readonly indexes: readonly { readonly primary: boolean; readonly columns: readonly string[] }[]
}

async function differences(db: Database, table: RateLimitTable, persistence: 'u' | 'p'): Promise<string[]> {
  const expected = shapeOf(table)
  const found = await readCatalogs(db, expected.quoted)
  const { name } = expected
  if (!found) {
    return [
      `The table ${name} is missing: add \`export * from 'drizzle-ratelimit/schema'\` to your schema and migrate.`,
    ]
  }
  const words: string[] = []
  for (const column of expected.columns) {
    const there = found.columns.find((other) => other.name === column.name)
    if (!there) words.push(`${name} has no column ${column.name}; it should be ${column.type}.`)
    else if (there.type !== column.type)
      words.push(`${name}.${column.name} is ${there.type}, not ${column.type}.`)
    else if (there.notNull && !column.notNull)
      words.push(`${name}.${column.name} is NOT NULL and should not be.`)
    else if (!there.notNull && column.notNull)
      words.push(`${name}.${column.name} should be NOT NULL and is not.`)
  }
  for (const column of found.columns) {
    if (
      column.notNull &&
      !column.hasDefault &&
      !expected.columns.some((other) => other.name === column.name)
    ) {
      words.push(`${name} has a column ${column.name} that is NOT NULL and that the limiter does not fill.`)
    }
  }
  const hasIndex = (columns: readonly string[], primary: boolean) =>
    found.indexes.some((index) => index.primary === primary && index.columns.join() === columns.join())
  if (!hasIndex(expected.primaryKey, true)) {
    words.push(`${name} has no primary key on (${expected.primaryKey.join(', ')}).`)
  }
  if (!hasIndex(expected.index, false)) words.push(`${name} has no index on (${expected.index.join(', ')}).`)
  if (found.persistence !== persistence) {
    words.push(
      persistence === 'u'
        ? `${name} is logged and should be UNLOGGED: run STORAGE_SQL in a migration (\`drizzle-kit generate --custom\`).`
        : `${name} is not logged, so a crash would empty it: run ALTER TABLE ${expected.quoted} SET LOGGED.`,
    )
  }
  for (const [option, value] of Object.entries(STORAGE_PARAMETERS)) {
    if (!found.options.includes(`${option}=${value}`)) {
      words.push(
        `${name} should have the storage parameter ${option} = ${value}: run STORAGE_SQL in a migration.`,
      )
    }
  }
  return words
}

/** As one JSON text, which every driver hands on as it is. */
async function readCatalogs(db: Database, quoted: string): Promise<Found | undefined> {
  const [row] = await execute(
    db,
    sql`select jsonb_build_object(
        'persistence', c.relpersistence,
        'options', coalesce(to_jsonb(c.reloptions), '[]'),
        'columns', (
          select jsonb_agg(jsonb_build_object(
            'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'notNull', a.attnotnull, 'hasDefault', a.atthasdef))
          from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
        'indexes', (
          select coalesce(jsonb_agg(jsonb_build_object('primary', i.indisprimary, 'columns', (
            select jsonb_agg(pg_get_indexdef(i.indexrelid, k, true) order by k)
            from generate_series(1, i.indnkeyatts) as k))), '[]')
          from pg_index i where i.indrelid = c.oid and i.indisvalid and i.indpred is null)
      )::text as found
      from pg_class c where c.oid = to_regclass(${quoted}::text)`,
  )
  return row && JSON.parse(String(row['found']))
}
