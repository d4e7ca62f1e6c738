import { type SQL, sql } from 'drizzle-orm'
import { getTableConfig } from 'drizzle-orm/pg-core'
import type { RateLimitTable } from '../../../schema/index.ts'

/** The quoted name of a table, with its schema if it has one. */
export function quotedName(table: RateLimitTable): string {
  const { name, schema } = getTableConfig(table)
  return schema ? `${quote(schema)}.${quote(name)}` : quote(name)
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

/**
 * Replaces the characters that a terminal acts on, such as escapes, line ends and marks of direction. Names in
 * a database may contain them.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\ufffd')
}
