import type { Database } from '../kernel/database/database.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { mayHaveCharged } from '../shared/may-have-charged.ts'
import { type ChargedIn, checkCharged } from './charged-in.ts'
import { transactionId, transactionStatus } from './transaction-status.ts'

/**
 * Work that is done once. It can be tried again after an error that says that nothing was charged, and after a
 * rollback of the transaction in which it was done.
 */
export class SettledOnce {
  /** `doneIn` is the id of the transaction in which it was done. */
  #state: 'open' | 'closed' | { readonly doneIn: string } = 'open'
  readonly #checker: Checker
  readonly #chargedIn: ChargedIn

  /** @param chargedIn Where the charge was made. If that is rolled back, the work is not needed again. */
  constructor(checker: Checker, chargedIn: ChargedIn) {
    this.#checker = checker
    this.#chargedIn = chargedIn
  }

  /**
   * @param tx The transaction that the work joins.
   * @throws RatelimitError `ALREADY_SETTLED` if the work was done, is under way, or may have been done;
   * `NOT_RESERVED` if the transaction of the charge is open elsewhere, or was rolled back.
   */
  async run<T>(tx: Database | undefined, work: () => Promise<T>): Promise<T> {
    const { db, isTransaction } = this.#checker.where(tx)
    await this.#close(db)
    let doneIn: string | undefined
    try {
      await checkCharged(this.#checker, this.#chargedIn, tx)
      if (isTransaction && db !== this.#chargedIn.db) doneIn = await transactionId(db)
    } catch (error) {
      this.#state = 'open'
      throw error
    }
    const done = doneIn === undefined ? 'closed' : { doneIn }
    try {
      const result = await work()
      this.#state = done
      return result
    } catch (error) {
      this.#state = mayHaveCharged(error) ? done : 'open'
      throw error
    }
  }

  /** Lets one of several concurrent calls through. */
  async #close(db: Database): Promise<void> {
    const before = this.#state
    if (before === 'closed') throw alreadySettled()
    this.#state = 'closed'
    if (before === 'open') return
    let isOpen = false
    try {
      isOpen = (await transactionStatus(db, before.doneIn)) === 'aborted'
    } finally {
      if (!isOpen) this.#state = before
    }
    if (!isOpen) throw alreadySettled()
  }
}

/** @throws RatelimitError `ALREADY_SETTLED` for a call whose id was used before, so it has charged nothing. */
export function refuseRepeated(): never {
  throw new RatelimitError(
    'ALREADY_SETTLED',
    'The id was used before, so this call has charged nothing. The call that was charged settles its estimate.',
  )
}

function alreadySettled(): RatelimitError {
  return new RatelimitError(
    'ALREADY_SETTLED',
    'It was committed or released before, or may have been. If that was in a transaction, it was not rolled back.',
  )
}
