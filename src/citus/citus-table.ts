import type { RateLimitTable } from '../../schema/index.ts'
import { onceFor } from '../kernel/base/once.ts'
import { UNKNOWN_SIZE } from '../kernel/database/statement.ts'
import type { Table } from '../kernel/store/store.ts'
import { CitusStore } from './citus-store.ts'

/**
 * A table that Citus has distributed by key. Its shards are known once, so limiters of one table share it.
 */
export const citusTable: (table: RateLimitTable) => Table = /* @__PURE__ */ onceFor((table) => {
  const statements = new Map()
  const store = new CitusStore(table, statements)
  const load: Table['load'] = async (db) => void (await store.load(db))
  return { table, statements, size: UNKNOWN_SIZE, store, load }
})
