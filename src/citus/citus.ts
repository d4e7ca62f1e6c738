import { type Exclusion, ownLayer } from '../kernel/engine/own-layer.ts'
import { hasSeveralRows } from '../kernel/limits/limiter.ts'
import type { Layer } from '../kernel/options/layer.ts'
import { citusTable } from './citus-table.ts'

const EXCLUDES: readonly Exclusion[] = [
  [
    'credits',
    ({ limiter }) => hasSeveralRows(limiter),
    'The grants of a key are rows of their own, and would be on several servers.',
  ],
]

/**
 * The store of tables that Citus has distributed by `key`, over the shards of several servers. The limiter then
 * sends statements that Citus can pass on to one server each.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { citus } from 'drizzle-ratelimit/citus'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.tokenBucket(5, '10s', 20)
 * export const api = new Ratelimit({ db, limiter, prefix: 'api', use: [citus()] })
 * ```
 */
export function citus(): Layer {
  return ownLayer<Layer>({ name: 'citus' }, { excludes: EXCLUDES, table: citusTable })
}
