import { findKit } from '../kit.ts'
import { type TableNames, tablesFrom } from '../tables.ts'
import { limiterTablesIn } from '../tables-after.ts'
import { type TableKind, tableKindOf } from './elsewhere.ts'

/** The names that the project's Drizzle schema gives the tables. Undefined if it does not tell. */
export async function declaredNames(): Promise<TableNames | undefined> {
  const sql = await findKit(undefined)
    .then((kit) => kit.schemaSql())
    .catch(() => '')
  const shipped = tablesFrom({ schema: 'public' })
  const found: Partial<Record<TableKind, string>> = {}
  const schemas = new Set<string>()
  for (const qualified of limiterTablesIn(sql)) {
    const [schema = '', name = ''] = qualified.split('.')
    const kind = tableKindOf(name, shipped)
    if (kind === undefined || found[kind] !== undefined) return undefined
    found[kind] = name
    schemas.add(schema)
  }
  const [schema] = schemas
  const { ephemeral, durable } = found
  if (schemas.size !== 1 || schema === undefined || !ephemeral || !durable) return undefined
  return { schema, ephemeral, durable }
}
