import { pgSchema } from 'drizzle-orm/pg-core'
import { type RateLimitTables, rateLimitTables } from '../../schema/index.ts'

/** The options for the names of the tables, for parseArgs. */
export const TABLE_OPTIONS = {
  schema: { type: 'string', default: 'public' },
  ephemeral: { type: 'string' },
  durable: { type: 'string' },
} as const

/** The option for their storage. */
export const LOGGED_OPTION = { logged: { type: 'boolean', default: false } } as const

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
