import { bareUpdate } from './bare-update.ts'
import type { Contender } from './contender.ts'
import { flexibleDrizzle, flexiblePostgres, flexibleRedis, flexibleUnlogged } from './flexible.ts'
import { plainSequence } from './plain-sequence.ts'
import { onNodePostgres, onPglite, onPostgresJs } from './this-package.ts'

/** Those whose store is a server, so that several processes can share it; Redis where `REDIS_URL` names one. */
export const ON_SERVERS: readonly Contender[] = [
  onNodePostgres,
  onPostgresJs,
  ...(process.env['REDIS_URL'] ? [flexibleRedis] : []),
  flexiblePostgres,
  flexibleUnlogged,
  flexibleDrizzle,
  plainSequence,
  bareUpdate,
]

export const ALL: readonly Contender[] = [...ON_SERVERS, onPglite]
