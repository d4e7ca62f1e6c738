import type { Outcome } from '../answers/outcome.ts'
import { nothingCharged } from '../database/database-error.ts'
import type { RatelimitError } from '../errors.ts'
import type { Batch, Dispatcher, Pending, Queued } from '../queue/queue.ts'
import type { Decision, Request } from '../store/call.ts'
import { Admission } from './admission.ts'
import type { Bounds } from './bounds.ts'
import type { Circuit } from './circuit.ts'
import type { SentAt } from './denials.ts'
import type { GoOn } from './sweeps.ts'

/** What calls on their way need of their limiter. */
export interface Sender<R extends Queued = Request, D = Decision> {
  readonly circuit: Circuit
  readonly dispatcher: () => Dispatcher<R, D>
  readonly goOn: GoOn
  /** Called when a request is decided. Returns the error if it was refused. */
  readonly decided?: (decided: Outcome<R, D>, sent: SentAt | undefined) => RatelimitError | undefined
  /** Called when a request has failed. It may have been charged all the same. */
  readonly failed?: (request: R) => void
}

/** A call on its way to the database. There is one for each check, so it has one promise. */
export class SentCall<T, R extends Queued = Request, D = Decision>
  extends Admission<T, Outcome<R, D>>
  implements Pending<R, D>
{
  readonly request: R
  batch: Batch<R, D> | undefined = undefined
  #isDecided = false
  readonly #sender: Sender<R, D>
  readonly #sent: SentAt | undefined
  readonly #resultOf: (decided: Outcome<R, D>) => T | PromiseLike<T>
  /** Called at the end of a call whose caller has given up. */
  #whenSettled: (() => void) | undefined

  /** @param sent What the cache of denials needs to know, if there is one. */
  constructor(
    sender: Sender<R, D>,
    request: R,
    sent: SentAt | undefined,
    bounds: Bounds<Outcome<R, D>> | undefined,
    resultOf: (decided: Outcome<R, D>) => T | PromiseLike<T>,
  ) {
    super(sender.circuit, bounds)
    this.request = request
    this.#sender = sender
    this.#sent = sent
    this.#resultOf = resultOf
    sender.dispatcher().add(this)
    // A call that memory has answered needs no timer.
    if (!this.#isDecided) this.watch()
  }

  get mayWait(): boolean {
    return this.batch?.mayWait ?? true
  }

  get statement(): object | undefined {
    return this.batch
  }

  hold(): void {
    this.isContended = true
    this.circuit.answered()
  }

  fulfil(decision: D, place: number): void {
    this.#isDecided = true
    this.circuit.answered()
    const decided = { call: this.request, decision, place }
    const refusal = this.#sender.decided?.(decided, this.#sent)
    const giveBack = this.isOver ? this.bounds.giveBack : undefined
    if (refusal) this.fail(refusal)
    else if (giveBack) giveBack(decided).then(this.#whenSettled)
    else this.resolve(this.#resultOf(decided))
  }

  fail(reason: RatelimitError): void {
    const error = this.request.purpose === 'look' ? nothingCharged(reason) : reason
    this.#isDecided = true
    this.circuit.learn(error, this.batch)
    this.#sender.failed?.(this.request)
    this.#whenSettled?.()
    this.reject(error)
  }

  protected leave(): boolean {
    const wasSent = this.#sender.dispatcher().cancel(this)
    if (wasSent && this.bounds.giveBack) {
      const settled = new Promise<void>((resolve) => {
        this.#whenSettled = resolve
      })
      this.#sender.goOn(settled)
    }
    return wasSent && this.request.purpose !== 'look'
  }
}
