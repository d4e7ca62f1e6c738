import type { LimitAllResult } from '../answers/results.ts'
import type { Database } from '../database/database.ts'
import type { Once } from '../options/calls.ts'
import type { AnyCall } from '../several/calls-of.ts'
import { idCall } from '../several/ids.ts'
import { combined } from '../several/limit-all.ts'
import { decideAll } from './decide-all.ts'
import { mixedOf } from './in-list.ts'

export { reserveAll } from './reserve-all.ts'
export { spend } from './spend.ts'

/** Checks several limits, one of which is the credits of a key: all are consumed, or none. */
export async function limitAll<Request>(
  requests: readonly Request[],
  calls: readonly AnyCall[],
  tx: Database | undefined,
  once: Once | undefined,
): Promise<LimitAllResult<Request>> {
  const mixed = mixedOf(calls)
  const { answered, retryAfter } = await decideAll(mixed, tx, await idCall(once, mixed.calls))
  return { ...combined(requests, answered), retryAfter }
}
