import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { mayHaveCharged } from '../shared/may-have-charged.ts'
import { type ChargedIn, checkCharged, transactionId, transactionStatus } from './charged-in.ts'

/** `doneIn` is the id of the transaction in which it was done. */
type State = 'open' | 'closed' | { readonly doneIn: string }

/**
 * Work that is done once. It can be tried again after an error that says that nothing was charged, and after a
 * rollback of the transaction in which it was done.
 */
export class SettledOnce {
  #state: State = 'open'
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
  async run<T>(tx: At, work: () => Promise<T>): Promise<T> {
    const before = this.#state
    if (before === 'closed') throw alreadySettled()
    // Of several concurrent calls, one gets through.
    this.#state = 'closed'
    // What it is in the end.
    let after: State = before
    let done: State | undefined
    try {
      const { db, isTransaction } = this.#checker.where(tx)
      const isOpen =
        before === 'open' || (await transactionStatus(this.#checker, tx, before.doneIn)) === 'aborted'
      if (!isOpen) throw alreadySettled()
      after = 'open'
      await checkCharged(this.#checker, this.#chargedIn, tx)
      const isOther = isTransaction && db !== this.#chargedIn.db
      done = isOther ? { doneIn: await transactionId(db) } : 'closed'
      const result = await work()
      after = done
      return result
    } catch (error) {
      if (done && mayHaveCharged(error)) after = done
      throw error
    } finally {
      this.#state = after
    }
  }
}

function alreadySettled(): RatelimitError {
  return new RatelimitError(
    'ALREADY_SETTLED',
    'It was committed or released before, or may have been. If that was in a transaction, it was not rolled back.',
  )
}
