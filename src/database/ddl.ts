import { getTableConfig } from 'drizzle-orm/pg-core'
import {
  type RateLimitTable,
  type RateLimitTables,
  rateLimitDurable,
  rateLimitEphemeral,
} from '../../schema/index.ts'

/** Room in each page for updated rows (HOT), and a vacuum that keeps up with rows that change all day. */
export const STORAGE_PARAMETERS: Readonly<Record<string, string>> = {
  fillfactor: '70',
  autovacuum_vacuum_scale_factor: '0.02',
  autovacuum_vacuum_threshold: '1000',
  autovacuum_analyze_scale_factor: '0.05',
}

/** A table as it should be, read from its Drizzle declaration. */
export interface TableShape {
  readonly name: string
  /** Quoted, with its schema where it has one. */
  readonly quoted: string
  readonly schema: string | undefined
  readonly columns: readonly { readonly name: string; readonly type: string; readonly notNull: boolean }[]
  readonly primaryKey: readonly string[]
  readonly index: readonly string[]
}

const shapes = new WeakMap<RateLimitTable, TableShape>()

export function shapeOf(table: RateLimitTable): TableShape {
  const known = shapes.get(table) ?? readShape(table)
  shapes.set(table, known)
  return known
}

function readShape(table: RateLimitTable): TableShape {
  const { name, schema, columns } = getTableConfig(table)
  return {
    name,
    schema,
    quoted: schema ? `${quote(schema)}.${quote(name)}` : quote(name),
    columns: columns.map((column) => ({
      name: column.name,
      type: column.getSQLType(),
      notNull: column.notNull,
    })),
    primaryKey: [table.prefix.name, table.key.name],
    index: [table.prefix.name, table.expiresAt.name],
  }
}

/** Creates the table and its index where they are missing, under the names that drizzle-kit gives them. */
export function createStatements(table: RateLimitTable): readonly string[] {
  const { name, quoted, columns, primaryKey, index } = shapeOf(table)
  const lines = [
    ...columns.map(({ name, type, notNull }) => `${quote(name)} ${type}${notNull ? ' NOT NULL' : ''}`),
    `CONSTRAINT ${quote(`${name}_${primaryKey.join('_')}_pk`)} PRIMARY KEY (${primaryKey.map(quote).join(', ')})`,
  ]
  return [
    `CREATE TABLE IF NOT EXISTS ${quoted} (\n  ${lines.join(',\n  ')}\n)`,
    `CREATE INDEX IF NOT EXISTS ${quote(`${name}_${index.join('_')}_index`)} ON ${quoted} (${index.map(quote).join(', ')})`,
  ]
}

/**
 * Sets what Drizzle's schema cannot say.
 *
 * The planner gets no statistics about prefixes. If a prefix was rare when they were gathered, the planner
 * would keep treating it as rare. It would then read all keys of the prefix by the cleanup index, instead of
 * one by the primary key.
 */
export function storageStatements(
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
): readonly string[] {
  const { quoted } = shapeOf(table)
  const parameters = Object.entries(STORAGE_PARAMETERS).map(([name, value]) => `${name} = ${value}`)
  return [
    ...(persistence === 'ephemeral' ? [`ALTER TABLE ${quoted} SET UNLOGGED`] : []),
    `ALTER TABLE ${quoted} SET (${parameters.join(', ')})`,
    `ALTER TABLE ${quoted} ALTER COLUMN ${quote(table.prefix.name)} SET STATISTICS 0`,
  ]
}

/**
 * Creates the shipped tables where they are missing: what the first migration in `drizzle/` does. Safe to run
 * again.
 *
 * For applications that do not migrate with drizzle-kit.
 */
export const TABLE_SQL: string = /* @__PURE__ */ script(() => [
  ...createStatements(rateLimitEphemeral),
  ...createStatements(rateLimitDurable),
])

/**
 * Makes the shipped ephemeral table UNLOGGED and sets the storage parameters of both: what the second
 * migration does. Safe to run again, and for a custom migration of your own (`drizzle-kit generate
 * --custom`).
 */
export const STORAGE_SQL: string = /* @__PURE__ */ script(() => [
  ...storageStatements(rateLimitEphemeral, 'ephemeral'),
  ...storageStatements(rateLimitDurable, 'durable'),
])

/** Called for a constant, it is marked as pure: a bundler then leaves out what nothing imports. */
function script(statements: () => readonly string[]): string {
  return statements()
    .map((statement) => `${statement};\n`)
    .join('')
}

export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
