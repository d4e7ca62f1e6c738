import { sql } from 'drizzle-orm'
import type { RateLimitTable, RateLimitTables } from '../../schema/index.ts'
import type { Database } from './database.ts'
import { SHIPPED, STORAGE_PARAMETERS, shapeOf, storageStatements, type TableShape } from './ddl.ts'
import { execute } from './run.ts'

/**
 * Compares the tables in the database with what the limiter expects, and says every difference in words.
 *
 * @returns One sentence for each difference; empty if there is none.
 * @throws RatelimitError `DATABASE` if the catalogs cannot be read.
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
export async function checkTables(db: Database, tables: RateLimitTables = SHIPPED): Promise<string[]> {
  return [
    ...(await differences(db, tables.ephemeral, 'ephemeral')),
    ...(await differences(db, tables.durable, 'durable')),
  ]
}

/** What the catalogs say of a table. */
interface Found {
  readonly persistence: 'u' | 'p' | 't'
  readonly options: readonly string[]
  readonly columns: readonly {
    readonly name: string
    readonly type: string
    readonly notNull: boolean
    readonly filled: boolean
    readonly statistics: number | null
  }[]
  readonly indexes: readonly {
    readonly primary: boolean
    readonly unique: boolean
    readonly columns: readonly string[]
  }[]
}

async function differences(
  db: Database,
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
): Promise<string[]> {
  const expected = shapeOf(table)
  const found = await readCatalogs(db, expected.quoted)
  const name = expected.schema ? `${expected.schema}.${expected.name}` : expected.name
  if (!found) {
    const means = "`export * from 'drizzle-ratelimit/schema'` or tables of your own"
    return [`${name} is missing: export it from your Drizzle schema (${means}), and migrate.`]
  }
  return [
    ...columnDifferences(expected, found),
    ...indexDifferences(expected, found),
    ...storageDifferences(table, persistence, found),
  ].map((difference) => `${name} ${difference}.`)
}

function* columnDifferences(expected: TableShape, found: Found): Generator<string> {
  for (const { name, type, notNull } of expected.columns) {
    const there = found.columns.find((other) => other.name === name)
    if (!there) yield `has no column ${name}, which should be ${type}`
    else if (there.type !== type) yield `has a column ${name} of type ${there.type} that should be ${type}`
    else if (there.notNull && !notNull) yield `has a column ${name} that is NOT NULL and should not be`
    else if (!there.notNull && notNull) yield `has a column ${name} that should be NOT NULL and is not`
  }
  for (const { name, notNull, filled } of found.columns) {
    if (notNull && !filled && !expected.columns.some((other) => other.name === name)) {
      yield `has a column ${name} that is NOT NULL and that the limiter does not fill`
    }
  }
}

function* indexDifferences(expected: TableShape, found: Found): Generator<string> {
  const { primaryKey, index } = expected
  const isOn = (columns: readonly string[]) => (other: { columns: readonly string[] }) =>
    other.columns.join() === columns.join()
  if (!found.indexes.some((other) => other.primary && isOn(primaryKey)(other))) {
    yield `has no primary key on (${primaryKey.join(', ')})`
  }
  if (!found.indexes.some(isOn(index))) {
    yield `has no index on (${index.join(', ')})`
  }
  for (const { primary, unique, columns } of found.indexes) {
    if (unique && !primary && !isOn(primaryKey)({ columns })) {
      yield `has a unique index on (${columns.join(', ')}), which refuses rows that the limiter has to insert`
    }
  }
}

function* storageDifferences(
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
  found: Found,
): Generator<string> {
  const mend = `run in a migration of your own: ${storageStatements(table, persistence).join('; ')}`
  if (persistence === 'ephemeral' && found.persistence !== 'u')
    yield `is logged and should be UNLOGGED; ${mend}`
  if (persistence === 'durable' && found.persistence !== 'p') {
    yield `is not logged, so that a crash would empty it; run ALTER TABLE ${shapeOf(table).quoted} SET LOGGED`
  }
  for (const [option, value] of Object.entries(STORAGE_PARAMETERS)) {
    if (!found.options.includes(`${option}=${value}`)) {
      yield `should have the storage parameter ${option} = ${value}; ${mend}`
    }
  }
  const prefix = found.columns.find(({ name }) => name === table.prefix.name)
  if (prefix && prefix.statistics !== 0) {
    yield `should have no statistics of the column ${table.prefix.name}, which mislead the planner; ${mend}`
  }
}

/** The catalogs are read as one JSON text, which every driver passes on unchanged. */
async function readCatalogs(db: Database, quoted: string): Promise<Found | undefined> {
  const [row] = await execute(
    db,
    sql`select jsonb_build_object(
        'persistence', c.relpersistence,
        'options', coalesce(to_jsonb(c.reloptions), '[]'),
        'columns', (
          select coalesce(jsonb_agg(jsonb_build_object(
            'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'notNull', a.attnotnull,
            'filled', a.atthasdef or a.attidentity <> '', 'statistics', a.attstattarget)), '[]')
          from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
        'indexes', (
          select coalesce(jsonb_agg(jsonb_build_object('primary', i.indisprimary, 'unique', i.indisunique, 'columns', (
            select jsonb_agg(pg_get_indexdef(i.indexrelid, k, true) order by k)
            from generate_series(1, i.indnkeyatts) as k))), '[]')
          from pg_index i where i.indrelid = c.oid and i.indisvalid and i.indpred is null)
      )::text as found
      from pg_class c where c.oid = to_regclass(${quoted}::text)`,
  )
  return row && JSON.parse(String(row['found']))
}
