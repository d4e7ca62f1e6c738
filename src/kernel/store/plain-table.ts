import type { RateLimitTable } from '../../../schema/index.ts'
import { onFirstUse } from '../base/once.ts'
import { statementsOf, TableSize } from '../database/statement.ts'
import { lookStatement } from '../sql/look.ts'
import { takeManyStatement } from '../sql/take.ts'
import { askToLook, askToMake, askToTake } from './ask.ts'
import type { Store, Table } from './store.ts'

const sweeping = /* @__PURE__ */ onFirstUse(() => import('./sweep.ts'))

export function plainTable(table: RateLimitTable): Table {
  const statements = statementsOf(table)
  const store: Store = {
    take: (target, asked, waits) => askToTake(target, asked, waits, takeManyStatement),
    look: (target, asked) => askToLook(target, asked, lookStatement),
    make: askToMake,
    sweep: async (...sweep) => (await sweeping()).sweepTable({ table, statements }, ...sweep),
    shardOf: () => 0,
    split: (values) => [values],
    forget: () => false,
    isShown: false,
  }
  return { table, statements, size: new TableSize(), store, load: undefined }
}
