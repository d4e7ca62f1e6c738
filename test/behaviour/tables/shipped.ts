import { type RateLimitTables, rateLimitDurable, rateLimitEphemeral } from '../../../src/index.ts'

/** The tables that the package ships. */
export const shipped: RateLimitTables = { ephemeral: rateLimitEphemeral, durable: rateLimitDurable }
