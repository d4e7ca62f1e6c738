import { isRequest } from '../answers/outcome.ts'
import type { Connection } from '../database/connection.ts'
import { timed } from '../diagnostics.ts'
import type { Call } from '../store/call.ts'
import { fill, removeRow } from '../store/fill.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'
import { forgetEverywhere } from './denials.ts'
import { withinTimeout } from './within-timeout.ts'
import { runOn } from './work.ts'

/** Makes the key's limit full again. */
export function reset(checker: Checker, call: Call, tx: At): Promise<void> {
  return withinTimeout([checker], tx, (at) => resetIn(checker, call, at))
}

async function resetIn(checker: Checker, call: Call, tx: At): Promise<void> {
  const { prefix, clock } = checker.rows.namespace
  // If the clock fails, it must fail before the row is changed.
  clock?.()
  // It is enough to remove the row, unless a new row would have less than the whole limit.
  const isEnough = !isRequest(call) || call.limiter.startsFull
  const resetOn = async (connection: Connection) => {
    const target = { ...checker.rows, connection, commit: 'as the session' } as const
    if (isEnough) await removeRow(target, call.key)
    else await fill(target, call)
  }
  const forget = () => forgetEverywhere(checker.rows, call.key, 'reset')
  const about = { prefix, statement: 'remove', keys: 1 } as const
  await runOn(checker, tx, 'changes', async (connection) => {
    const change = () => timed(about, () => resetOn(connection))
    // Units in memory that came back after the reset would lower the count of the new row.
    if (!connection.isTransaction) await checker.inAdvance?.returned()
    await (connection.isTransaction ? change() : checker.alone.watch(change)).finally(forget)
  }).finally(forget)
}
