import { bareUpdate } from './bare-update.ts'
import { theCommitBefore } from './before.ts'
import type { Contender } from './contender.ts'
import { flexibleDrizzle, flexiblePostgres, flexibleRedis, flexibleUnlogged } from './flexible.ts'
import { plainSequence } from './plain-sequence.ts'
import { onNodePostgres, onPglite, onPostgresJs } from './this-package.ts'

/**
 * The contenders whose store is a server, so that several processes can share it. Redis is among them if
 * `REDIS_URL` names a server.
 *
 * @param before Another checkout of this repository, which takes part too.
 */
export function onServers(before?: string): readonly Contender[] {
  return [
    onNodePostgres,
    ...(before ? [theCommitBefore(before)] : []),
    onPostgresJs,
    ...(process.env['REDIS_URL'] ? [flexibleRedis] : []),
    flexiblePostgres,
    flexibleUnlogged,
    flexibleDrizzle,
    plainSequence,
    bareUpdate,
  ]
}

export function everyone(before?: string): readonly Contender[] {
  return [...onServers(before), onPglite]
}
