import { type SQL, sql } from 'drizzle-orm'
import { getTableConfig } from 'drizzle-orm/pg-core'
import {
  type RateLimitTable,
  type RateLimitTables,
  rateLimitDurable,
  rateLimitEphemeral,
} from '../../../schema/index.ts'
import { onceFor } from '../base/once.ts'

export interface TableName {
  readonly name: string
  readonly schema: string | undefined
  /** The quoted name, with the schema if there is one. */
  readonly quoted: string
}

/** A table's name. Lists need it for each call. */
export const nameOf: (table: RateLimitTable) => TableName = /* @__PURE__ */ onceFor((table) => {
  const { name, schema } = getTableConfig(table)
  return { name, schema, quoted: schema ? `${quote(schema)}.${quote(name)}` : quote(name) }
})

/** The name of a table in SQL. Two declarations of one table have the same. */
export function quotedName(table: RateLimitTable): string {
  return nameOf(table).quoted
}

export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

export function textLiteral(text: string): string {
  return `'${text.replaceAll("'", "''")}'`
}

/** The table itself, as an argument of functions of Postgres. */
export function oidOf(table: RateLimitTable): SQL {
  return sql.raw(`${textLiteral(quotedName(table))}::regclass`)
}

export const SHIPPED: RateLimitTables = { ephemeral: rateLimitEphemeral, durable: rateLimitDurable }
