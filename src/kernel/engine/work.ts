import { type Connection, newSending, type Sending, telling, withdraw } from '../database/connection.ts'
import { nothingCharged, uncharged } from '../database/database-error.ts'
import { retrying } from '../database/retry.ts'
import { RatelimitError } from '../errors.ts'
import { afterWait } from '../queue/blame.ts'
import { Admission, refusalAt } from './admission.ts'
import type { At, Bounds } from './bounds.ts'
import type { Checker } from './checker.ts'

/** What work has entered to be done. */
interface Entry {
  /** The work has ended. */
  leave?(): void
  /** The caller of the work has given up. */
  giveUp?(): void
}

/**
 * Work on the database outside of the key queues. The number of such calls and their time are limited. It says
 * itself how far it has come, which decides the error if the time is over.
 */
export class Work<T> extends Admission<T> {
  /** Whether it may have charged something by now. */
  mayCharge = false
  mayWait = false
  statement: object | undefined = undefined
  /** How far its statements have come. */
  sending: Sending = newSending()
  #entry: Entry | undefined

  /** @throws RatelimitError if it may not begin. */
  constructor({ circuit }: Checker, bounds: Bounds | undefined) {
    super(circuit, bounds)
    const refusal = refusalAt(circuit, bounds)
    if (refusal) throw refusal
  }

  /** Waits for the end of the work, which has begun. */
  waitFor(work: Promise<T>, entry: Entry): Promise<T> {
    this.#entry = entry
    work.then(
      (result) => {
        entry.leave?.()
        this.circuit.answered()
        this.resolve(result)
      },
      (reason) => {
        entry.leave?.()
        this.reject(reason instanceof RatelimitError ? this.#learned(reason) : reason)
      },
    )
    this.watch()
    return this.result
  }

  protected leave(): boolean {
    this.isOver = true
    const mayBeCharged = this.mayCharge && !withdraw(this.sending)
    this.#entry?.giveUp?.()
    return mayBeCharged
  }

  /** The error of work that failed. Also counts the failure, even if the caller has given up. */
  #learned(reason: RatelimitError): RatelimitError {
    const known = this.mayCharge ? reason : nothingCharged(reason)
    const error = this.mayWait ? afterWait(known, this.isContended) : known
    // Work that stops because its time is over had an answer from the database before, unless it never began.
    if (error.code !== 'TIMEOUT') this.circuit.learn(error, this.statement)
    else if (!this.sending.isWithdrawn) this.circuit.answered()
    return error
  }
}

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
  if (joined) return does === 'looks' ? uncharged(run(joined)) : run(joined)
  const work = new Work<T>(checker, checker.boundsOf(tx))
  work.mayCharge = work.mayWait = does === 'changes'
  const { connection, ensureTables } = checker.rows
  const leave = checker.room.enter()
  const running = async () => {
    await ensureTables?.()
    return retrying(() => run(telling(connection, work.sending)))
  }
  return work.waitFor(running(), { leave })
}
