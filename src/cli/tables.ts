import { pgSchema } from 'drizzle-orm/pg-core'
import { type RateLimitTable, type RateLimitTables, rateLimitTables } from '../../schema/index.ts'
import { SHIPPED } from '../kernel/database/table-name.ts'
import { tableShapeOf } from '../tables/ddl.ts'

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

/** The names of the tables. */
export interface TableNames {
  readonly schema: string
  readonly ephemeral: string
  readonly durable: string
}

export function tablesFrom({ schema, ephemeral, durable }: TableValues): RateLimitTables {
  return rateLimitTables({
    ...(schema === 'public' ? {} : { schema: pgSchema(schema) }),
    ...(ephemeral === undefined ? {} : { ephemeral }),
    ...(durable === undefined ? {} : { durable }),
  })
}

/** The name of a table, with its schema. */
export function qualifiedName(table: RateLimitTable): string {
  const { schema = 'public', name } = tableShapeOf(table)
  return `${schema}.${name}`
}

/** Whether both tables have the names that the package gives them. */
export function isShipped({ ephemeral, durable }: RateLimitTables): boolean {
  const [first, second] = [ephemeral, durable].map(qualifiedName)
  return first === qualifiedName(SHIPPED.ephemeral) && second === qualifiedName(SHIPPED.durable)
}
