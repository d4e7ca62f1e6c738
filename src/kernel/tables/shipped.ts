import { type RateLimitTables, rateLimitDurable, rateLimitEphemeral } from '../../../schema/index.ts'

/** The two tables that the package declares. */
export const SHIPPED: RateLimitTables = { ephemeral: rateLimitEphemeral, durable: rateLimitDurable }
