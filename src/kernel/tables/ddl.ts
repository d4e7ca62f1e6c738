import { getTableConfig, type PgPolicy } from 'drizzle-orm/pg-core'
import type { RateLimitTable, RateLimitTables } from '../../../schema/index.ts'
import { checkOptions, checkSwitch, type NamesOf } from '../base/check-options.ts'
import { onceFor } from '../base/once-for.ts'
import { checkTablesGiven } from '../database/given.ts'
import { createPolicy, secure } from './policies.ts'
import { SHIPPED } from './shipped.ts'
import { quote, quotedName, textLiteral } from './table-name.ts'

/** Leaves room in each page for updated rows (HOT), and lets autovacuum keep up with constant updates. */
export const STORAGE_PARAMETERS: Readonly<Record<string, string>> = {
  fillfactor: '70',
  autovacuum_vacuum_scale_factor: '0.02',
  autovacuum_vacuum_threshold: '1000',
  autovacuum_analyze_scale_factor: '0.05',
}

/** A table as it should be, read from its Drizzle declaration. The index has drizzle-kit's name. */
export interface TableShape {
  readonly name: string
  /** The quoted name, with the schema if there is one. */
  readonly quoted: string
  readonly schema: string | undefined
  readonly columns: readonly ColumnShape[]
  readonly primaryKey: readonly string[]
  readonly index: readonly string[]
  readonly indexName: string
  /** Whether row level security is declared. */
  readonly rls: boolean
  readonly policies: readonly PgPolicy[]
}

export interface ColumnShape {
  readonly name: string
  readonly type: string
  readonly notNull: boolean
}

export const tableShapeOf: (table: RateLimitTable) => TableShape = /* @__PURE__ */ onceFor(readShape)

function readShape(table: RateLimitTable): TableShape {
  const { name, schema, columns, enableRLS, policies } = getTableConfig(table)
  const index = [table.prefix.name, table.expiresAt.name]
  return {
    name,
    schema,
    quoted: quotedName(table),
    columns: columns.map((column) => ({
      name: column.name,
      type: column.getSQLType(),
      notNull: column.notNull,
    })),
    primaryKey: [table.prefix.name, table.key.name],
    index,
    indexName: `${name}_${index.join('_')}_index`,
    rls: enableRLS,
    policies,
  }
}

/** Creates the table, its index and its Postgres schema where they are missing. */
export function createStatements(table: RateLimitTable): readonly string[] {
  const { schema, quoted, columns, rls, policies } = tableShapeOf(table)
  const lines = [...columns.map(columnDefinition), primaryKeyDefinition(table)]
  return [
    ...(schema === undefined ? [] : [createSchema(schema)]),
    `CREATE TABLE IF NOT EXISTS ${quoted} (\n  ${lines.join(',\n  ')}\n)`,
    createIndex(table, 'IF NOT EXISTS '),
    ...(rls ? [secure(quoted)] : []),
    ...policies.map((policy) => createPolicy(quoted, policy)),
  ]
}

/** Unlike CREATE SCHEMA IF NOT EXISTS, this needs no right to create schemas if the schema exists. */
function createSchema(schema: string): string {
  const missing = `to_regnamespace(${textLiteral(quote(schema))}::text) IS NULL`
  return `DO ${textLiteral(`BEGIN IF ${missing} THEN CREATE SCHEMA ${quote(schema)}; END IF; END`)}`
}

export function columnDefinition({ name, type, notNull }: ColumnShape): string {
  return `${quote(name)} ${type}${notNull ? ' NOT NULL' : ''}`
}

export function primaryKeyDefinition(table: RateLimitTable): string {
  const { name, primaryKey } = tableShapeOf(table)
  return `CONSTRAINT ${quote(`${name}_${primaryKey.join('_')}_pk`)} PRIMARY KEY (${primaryKey.map(quote).join(', ')})`
}

export function createIndex(table: RateLimitTable, condition: 'IF NOT EXISTS ' | '' = ''): string {
  const { quoted, index, indexName } = tableShapeOf(table)
  return `CREATE INDEX ${condition}${quote(indexName)} ON ${quoted} (${index.map(quote).join(', ')})`
}

/** Options of how the tables are stored. */
export interface StorageOptions {
  /**
   * Whether the ephemeral table is logged too, for servers that empty UNLOGGED tables whenever they stop.
   * Default: `false`.
   */
  readonly logged?: boolean
}

const STORAGE_NAMES: NamesOf<StorageOptions> = { logged: true }

/** @throws RatelimitError `INVALID_OPTION` */
export function checkStorageOptions(options: StorageOptions): void {
  checkOptions(options, STORAGE_NAMES)
  checkSwitch(options.logged, 'logged')
}

/** The statements for settings that Drizzle's schema cannot express. */
export function storageStatements(
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
  { logged = false }: StorageOptions = {},
): readonly string[] {
  const { quoted } = tableShapeOf(table)
  return [
    ...(persistence === 'ephemeral' ? [setPersistence(quoted, logged ? 'LOGGED' : 'UNLOGGED')] : []),
    setParameters(quoted, STORAGE_PARAMETERS),
    setStatistics(quoted, table),
  ]
}

export function setPersistence(quoted: string, persistence: 'LOGGED' | 'UNLOGGED'): string {
  return `ALTER TABLE ${quoted} SET ${persistence}`
}

export function setParameters(quoted: string, parameters: typeof STORAGE_PARAMETERS): string {
  const list = Object.entries(parameters).map(([name, value]) => `${name} = ${value}`)
  return `ALTER TABLE ${quoted} SET (${list.join(', ')})`
}

/**
 * Gives the planner no statistics about prefixes. If a prefix was rare when they were gathered, the planner
 * would go on treating it as rare. It would then read all keys of the prefix by the cleanup index, instead of
 * one key by the primary key.
 */
export function setStatistics(quoted: string, { prefix }: RateLimitTable): string {
  return `ALTER TABLE ${quoted} ALTER COLUMN ${quote(prefix.name)} SET STATISTICS 0`
}

/**
 * The statements that create missing tables and their Postgres schema, as drizzle-kit's first migration does.
 * Each is safe to run again.
 *
 * For applications that do not migrate with drizzle-kit. It is a list, because some drivers accept only one
 * statement at a time.
 *
 * @param tables Default: the two tables of the package.
 * @throws RatelimitError `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { storageSql, tableSql } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * for (const statement of [...tableSql(), ...storageSql()]) await db.execute(statement)
 * ```
 */
export function tableSql(tables: RateLimitTables = SHIPPED): string[] {
  checkTablesGiven(tables)
  return [...new Set([tables.ephemeral, tables.durable].flatMap(createStatements))]
}

/**
 * The statements that make the ephemeral table UNLOGGED and set the storage parameters of both tables, as the
 * migration by `npx drizzle-ratelimit storage` does. Each is safe to run again.
 *
 * @param tables Default: the two tables of the package.
 * @param options With `logged: true` the ephemeral table is logged, and the rest is the same.
 * @throws RatelimitError `INVALID_OPTION`
 */
export function storageSql(tables: RateLimitTables = SHIPPED, options: StorageOptions = {}): string[] {
  checkTablesGiven(tables)
  checkStorageOptions(options)
  return [
    ...storageStatements(tables.ephemeral, 'ephemeral', options),
    ...storageStatements(tables.durable, 'durable', options),
  ]
}
