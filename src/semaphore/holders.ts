import type { Database } from '../kernel/database/database.ts'
import { mustHave } from '../kernel/database/rows.ts'
import { type Row, runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import { timed } from '../kernel/diagnostics.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { runOn } from '../kernel/engine/work.ts'
import { exactNumber } from '../shared/number-columns.ts'
import { holdersStatement } from './sql/holders.ts'

/** A slot that is held now. */
export interface Holder {
  /** The number of the slot, from 1. */
  readonly slot: number
  /** The fence of its lease. Undefined if another transaction holds the slot: nobody else sees its row. */
  readonly fence: number | undefined
  /** Unix milliseconds at which it was leased. Undefined if another transaction holds the slot. */
  readonly since: number | undefined
  /** Unix milliseconds at which its lease ends. Undefined if it ends with a transaction. */
  readonly expires: number | undefined
}

/** Lists the slots of the key that are held now, in their order. */
export function holdersOf(checker: Checker, key: string, tx: Database | undefined): Promise<Holder[]> {
  const { table, namespace } = checker.rows
  const { prefix } = namespace
  return withinTimeout([checker], tx, (at) =>
    runOn(checker, at, 'looks', async (connection) => {
      const clock = namespace.clock?.() ?? null
      const injectedClock = clock !== null
      const statement = kept(table.statements, `holders ${injectedClock}`, () =>
        holdersStatement(table.table, injectedClock),
      )
      const look = () => runOnce(connection, statement, { prefix, key, clock })
      return (await timed({ prefix, statement: 'look', keys: 1 }, look)).map(holderIn)
    }),
  )
}

function holderIn(row: Row): Holder {
  const fence = numberOr(row['fence'])
  return {
    slot: Number(mustHave(row['number'])),
    fence,
    // A fence begins with the time of its lease.
    since: fence === undefined ? undefined : Math.floor(fence / 1_000),
    expires: numberOr(row['ends']),
  }
}

function numberOr(value: unknown): number | undefined {
  return mustHave(value) === null ? undefined : exactNumber(value)
}
