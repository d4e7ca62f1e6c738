import { type Connection, telling } from '../database/connection.ts'
import { retrying } from '../database/retry.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'
import { Work } from './work.ts'

/**
 * Runs the work in the transaction that it joins, or alone, where it is retried if it lost against another.
 *
 * @param does What changes rows may wait for them, and may have changed them when its time is over.
 */
export function runOn<T>(
  checker: Checker,
  tx: At,
  does: 'looks' | 'changes',
  run: (connection: Connection) => Promise<T>,
): Promise<T> {
  const joined = checker.joined(tx)
  if (joined) return run(joined)
  const work = new Work<T>(checker, checker.boundsOf(tx))
  work.mayCharge = work.mayWait = does === 'changes'
  const { connection, ensureTables } = checker.rows
  return work.begin({ leave: checker.enter() }, async () => {
    await ensureTables?.()
    return retrying(() => run(telling(connection, work.sending)))
  })
}
