import type { Connection } from '../database/connection.ts'
import { retrying } from '../database/retry.ts'
import { newSending } from '../database/sending.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'
import { outsideQueue, type Stage } from './outside-queue.ts'

/** Runs the work in the transaction that it joins, or alone, where it is retried if it lost against another. */
export function runOn<T>(
  checker: Checker,
  tx: At,
  stage: Stage,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const joined = checker.joined(tx)
  if (joined) return work(joined)
  const sending = newSending()
  const running = async () => {
    await checker.config.ensureTables?.()
    return retrying(() => work({ ...checker.config.home, sending }))
  }
  return outsideQueue(checker, { ...stage, sending }, running, undefined, checker.boundsOf(tx))
}
