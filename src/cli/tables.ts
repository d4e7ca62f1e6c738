import { pgSchema } from 'drizzle-orm/pg-core'
import { type RateLimitTables, rateLimitTables } from '../../schema/index.ts'

/** The options for the names and the storage of the tables, for parseArgs. */
export const STORAGE_OPTIONS = {
  schema: { type: 'string', default: 'public' },
  ephemeral: { type: 'string' },
  durable: { type: 'string' },
  logged: { type: 'boolean', default: false },
} as const

export interface TableValues {
  readonly schema: string
  readonly ephemeral?: string | undefined
  readonly durable?: string | undefined
}

export function tablesOf({ schema, ephemeral, durable }: TableValues): RateLimitTables {
  return rateLimitTables({
    ...(schema === 'public' ? {} : { schema: pgSchema(schema) }),
    ...(ephemeral === undefined ? {} : { ephemeral }),
    ...(durable === undefined ? {} : { durable }),
  })
}
