import type { Outcome } from '../answers/outcome.ts'
import { whenAborted } from '../base/abort.ts'
import type { Deadline, Timed } from '../base/deadlines.ts'
import { nothingCharged } from '../database/database-error.ts'
import type { RatelimitError } from '../errors.ts'
import type { Decision, Request } from '../runtime/call.ts'
import type { Circuit } from '../runtime/circuit.ts'
import type { Batch, Dispatcher, Pending } from '../runtime/queue.ts'
import { type Bounds, timedOut } from './bounds.ts'
import type { Sent } from './denials.ts'
import { refusalOf } from './refusal.ts'

/** What a call on its way needs of its limiter. */
export interface Sender {
  readonly circuit: Circuit
  readonly dispatcher: () => Dispatcher
  /** Hands work that continues after an answer to the runtime. */
  readonly goOn: (work: Promise<unknown>) => void
  /** Called when a request is decided. */
  readonly decided: (request: Request, decision: Decision, place: number, sent: Sent | undefined) => void
  /** Called when a request has failed. It may have been charged all the same. */
  readonly failed: (request: Request) => void
}

/** A call on its way to the database. There is one for each check, so it has one promise. */
export class SentCall<T> implements Pending, Timed {
  readonly request: Request
  isOver = false
  batch: Batch | undefined = undefined
  isContended = false
  #isDecided = false
  readonly result: Promise<T>
  readonly #sender: Sender
  readonly #sent: Sent | undefined
  readonly #bounds: Bounds | undefined
  readonly #resultOf: (outcome: Outcome) => T
  #resolve!: (result: T) => void
  #reject!: (reason: unknown) => void
  #deadline: Pick<Deadline, 'stop'> | undefined
  #stopSignal: (() => void) | undefined
  /** Called at the end of a call whose caller has given up. */
  #whenSettled: (() => void) | undefined

  /** @param sent What the cache of denials needs to know, if there is one. */
  constructor(
    sender: Sender,
    request: Request,
    sent: Sent | undefined,
    bounds: Bounds | undefined,
    resultOf: (outcome: Outcome) => T,
  ) {
    this.request = request
    this.#sender = sender
    this.#sent = sent
    this.#bounds = bounds
    this.#resultOf = resultOf
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    sender.dispatcher().add(this)
    // A call that a lease has answered needs no timer.
    if (bounds && !this.#isDecided) this.#watch(bounds)
  }

  /** As `watchBounds` does, without making a function for each call. */
  #watch({ time, signal }: Bounds): void {
    this.#deadline = time?.begin(this)
    this.#stopSignal = signal && whenAborted(signal, () => this.#giveUp({ aborted: signal.reason }))
  }

  #stopWatching(): void {
    this.#deadline?.stop()
    this.#stopSignal?.()
  }

  over(): void {
    this.#giveUp('timeout')
  }

  hold(): void {
    this.isContended = true
    this.#sender.circuit.answered()
  }

  fulfil(decision: Decision, place: number): void {
    const { request } = this
    this.#isDecided = true
    this.#stopWatching()
    this.#sender.circuit.answered()
    const refusal = refusalOf(request, decision, place)
    if (refusal) {
      this.fail(refusal)
      return
    }
    this.#sender.decided(request, decision, place, this.#sent)
    const outcome = { call: request, decision, place }
    const giveBack = this.isOver ? this.#bounds?.giveBack : undefined
    giveBack?.(outcome).then(this.#whenSettled)
    this.#resolve(this.#resultOf(outcome))
  }

  fail(reason: RatelimitError): void {
    const error = this.request.purpose === 'look' ? nothingCharged(reason) : reason
    this.#isDecided = true
    this.#stopWatching()
    this.#sender.circuit.learn(error, this.batch)
    this.#sender.failed(this.request)
    this.#whenSettled?.()
    this.#reject(error)
  }

  #giveUp(why: { readonly aborted: unknown } | 'timeout'): void {
    this.#stopWatching()
    const bounds = this.#bounds
    const { dispatcher, goOn, circuit } = this.#sender
    const wasSent = dispatcher().cancel(this)
    if (wasSent && bounds?.giveBack) {
      const settled = new Promise<void>((resolve) => {
        this.#whenSettled = resolve
      })
      goOn(settled)
    }
    if (why !== 'timeout') {
      this.#reject(why.aborted)
      return
    }
    const error = timedOut(wasSent && this.request.purpose !== 'look', this.isContended)
    const { batch } = this
    if (bounds?.onWaitOver) bounds.onWaitOver()
    // A wait for a held row, or for other calls of the key, says nothing about the database.
    else if (batch && !batch.mayWait) circuit.failed(error, batch)
    this.#reject(error)
  }
}
