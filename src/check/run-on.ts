import type { Connection } from '../database/connection.ts'
import { retrying } from '../database/retry.ts'
import { newSending } from '../database/sending.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'
import { outsideQueue } from './outside-queue.ts'

/**
 * Runs the work in the transaction that it joins, or alone, where it is retried if it lost against another.
 *
 * @param does What changes rows may wait for them, and may have changed them when its time is over.
 */
export function runOn<T>(
  checker: Checker,
  tx: At,
  does: 'looks' | 'changes',
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const joined = checker.joined(tx)
  if (joined) return work(joined)
  const sending = newSending()
  const running = async () => {
    await checker.rows.ensureTables?.()
    return retrying(() => work({ ...checker.rows.connection, sending }))
  }
  const changes = does === 'changes'
  const stage = { mayCharge: changes, mayWait: changes, isContended: false, sending }
  return outsideQueue(checker, stage, running, undefined, checker.boundsOf(tx))
}
