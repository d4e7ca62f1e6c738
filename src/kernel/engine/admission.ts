import { whenAborted } from '../base/abort.ts'
import type { Deadline, Timed } from '../base/deadlines.ts'
import type { RatelimitError } from '../errors.ts'
import { type Bounds, timedOut } from './bounds.ts'
import type { Circuit } from './circuit.ts'

/** The error with which a call outside of transactions fails at once. Undefined if it may go on. */
export function refusalAt(circuit: Circuit, bounds: Bounds<never> | undefined): RatelimitError | undefined {
  return bounds?.time?.isOver ? timedOut(false, false) : circuit.refusal()
}

/**
 * The wait of a caller for the database, outside of transactions: until there is a result or an error, or until
 * its bounds are reached. `Late` is what may come after that.
 */
export abstract class Admission<T, Late = never> implements Timed {
  /** Its caller has given up. */
  isOver = false
  /** Whether it waited for its own keys: for rows that others hold, or behind other calls. */
  isContended = false
  readonly result: Promise<T>
  protected readonly circuit: Circuit
  protected readonly bounds: Bounds<Late>
  #resolve!: (result: T | PromiseLike<T>) => void
  #reject!: (reason: unknown) => void
  #deadline: Pick<Deadline, 'stop'> | undefined
  #stopSignal: (() => void) | undefined

  constructor(circuit: Circuit, bounds: Bounds<Late> = {}) {
    this.circuit = circuit
    this.bounds = bounds
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  /** Whether it may be waiting for others. A timeout then says nothing about the database. */
  abstract readonly mayWait: boolean
  /** Others have the same one if they share the statement. A failure of the statement then counts once. */
  abstract readonly statement: object | undefined
  /** Its caller gives up. Returns whether something may have been charged. */
  protected abstract leave(): boolean

  /** Begins to watch the bounds. The signal must not have aborted before. */
  protected watch(): void {
    const { time, signal } = this.bounds
    this.#deadline = time?.begin(this)
    this.#stopSignal = signal && whenAborted(signal, () => this.giveUp(signal.reason))
  }

  #stopWatching(): void {
    this.#deadline?.stop()
    this.#stopSignal?.()
  }

  protected resolve(result: T | PromiseLike<T>): void {
    this.#stopWatching()
    this.#resolve(result)
  }

  protected reject(reason: unknown): void {
    this.#stopWatching()
    this.#reject(reason)
  }

  over(): void {
    const error = timedOut(this.leave(), this.isContended)
    if (!this.bounds.isRest && !this.mayWait) this.circuit.failed(error, this.statement)
    this.reject(error)
  }

  /** Ends the wait before the time is over. */
  giveUp(reason: unknown): void {
    this.leave()
    this.reject(reason)
  }
}
