import type { RateLimitTable } from '../../../schema/index.ts'
import { onFirstUse } from '../base/on-first-use.ts'
import { onceFor } from '../base/once-for.ts'
import type { Database } from '../database/database.ts'
import { TableSize, UNKNOWN_SIZE } from '../database/table-size.ts'
import { lookStatement } from '../sql/look.ts'
import { statementsOf } from '../sql/statements.ts'
import { takeManyStatement } from '../sql/take.ts'
import { askToLook, askToMake, askToTake } from './ask.ts'
import type { CitusStore } from './citus-store.ts'
import type { Store, Table } from './store.ts'

/**
 * The table of a limiter, with the store of one server, or that of Citus if it has distributed it by key.
 * No other file asks which one it is.
 */
export function tableOf(table: RateLimitTable, distributed: boolean): Table {
  return distributed ? citusTable(table) : plainTable(table)
}

const sweeping = /* @__PURE__ */ onFirstUse(() => import('./sweep.ts'))

function plainTable(table: RateLimitTable): Table {
  const statements = statementsOf(table)
  const store: Store = {
    take: (asking, asked) => askToTake(asking, asked, takeManyStatement),
    look: (asking, asked) => askToLook(asking, asked, lookStatement),
    make: askToMake,
    sweep: async (...sweep) => (await sweeping()).sweepTable({ table, statements }, ...sweep),
    shardOf: () => 0,
    split: (values) => [values],
    forget: () => false,
  }
  const size = new TableSize()
  return { table, statements, size, reachesAllRows: true, store: () => store, load: undefined }
}

/** Its shards are known once, so limiters of one table share it. */
const citusTable = /* @__PURE__ */ onceFor((table: RateLimitTable): Table => {
  const statements = new Map()
  let made: CitusStore | undefined
  const store = onFirstUse(async () => {
    const { CitusStore } = await import('./citus-store.ts')
    made ??= new CitusStore(table, statements)
    return made
  })
  const load = async (db: Database) => {
    await (await store()).load(db)
  }
  return { table, statements, size: UNKNOWN_SIZE, reachesAllRows: false, store, load }
})
