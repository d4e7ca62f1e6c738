import type { SQL } from 'drizzle-orm'
import { getTableConfig, PgDialect, type PgPolicy } from 'drizzle-orm/pg-core'
import type { RateLimitTable, RateLimitTables } from '../../schema/index.ts'
import { onceFor } from '../kernel/base/once.ts'
import { nameOf, quote, type TableName, textLiteral } from '../kernel/database/table-name.ts'

/** Leaves room in each page for updated rows (HOT), and lets autovacuum keep up with constant updates. */
export const STORAGE_PARAMETERS: Readonly<Record<string, string>> = {
  fillfactor: '70',
  autovacuum_vacuum_scale_factor: '0.02',
  autovacuum_vacuum_threshold: '1000',
  autovacuum_analyze_scale_factor: '0.05',
}

/** A table as it should be, read from its Drizzle declaration. The index has drizzle-kit's name. */
export interface TableShape extends TableName {
  /** The name for people, with the schema if there is one. */
  readonly about: string
  readonly columns: readonly ColumnShape[]
  readonly primaryKey: readonly string[]
  readonly index: readonly string[]
  readonly indexName: string
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
  const { columns, enableRLS, policies } = getTableConfig(table)
  const named = nameOf(table)
  const { name, schema } = named
  const index = [table.prefix.name, table.expiresAt.name]
  return {
    ...named,
    about: schema ? `${schema}.${name}` : name,
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

/** The statements for settings that Drizzle's schema cannot express. */
export function storageStatements(
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
  logged = false,
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

export function secure(quoted: string): string {
  return `ALTER TABLE ${quoted} ENABLE ROW LEVEL SECURITY`
}

/** Creates a policy of a table, unless there is one of its name. */
export function createPolicy(quoted: string, policy: PgPolicy): string {
  const { name, as, for: command, to, using, withCheck } = policy
  const parts = [
    `CREATE POLICY ${quote(name)} ON ${quoted}`,
    ...(as ? [`AS ${as}`] : []),
    ...(command ? [`FOR ${command}`] : []),
    ...(to ? [`TO ${rolesIn(to).join(', ')}`] : []),
    ...(using ? [`USING (${conditionText(using)})`] : []),
    ...(withCheck ? [`WITH CHECK (${conditionText(withCheck)})`] : []),
  ]
  const there = `SELECT FROM pg_policy WHERE polrelid = ${textLiteral(quoted)}::regclass AND polname = ${textLiteral(name)}`
  return `DO ${textLiteral(`BEGIN IF NOT EXISTS (${there}) THEN ${parts.join(' ')}; END IF; END`)}`
}

/** Words of SQL, which are no names of roles. */
const WORDS = ['public', 'current_role', 'current_user', 'session_user']

function rolesIn(to: NonNullable<PgPolicy['to']>): string[] {
  if (Array.isArray(to)) return to.flatMap(rolesIn)
  if (typeof to !== 'string') return [quote(to.name)]
  return [WORDS.includes(to) ? to : quote(to)]
}

function conditionText(condition: SQL): string {
  return new PgDialect().sqlToQuery(condition.inlineParams()).sql
}
