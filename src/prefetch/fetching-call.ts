import type { RatelimitError } from '../kernel/errors.ts'
import type { Batch, Pending } from '../kernel/queue/queue.ts'
import type { Decision, Request } from '../kernel/store/call.ts'

/** A call on its way to the database. Its caller gets what `onDecision` makes of the answer. */
export class FetchingCall implements Pending {
  readonly caller: Pending
  readonly #onDecision: Pending['fulfil']

  constructor(caller: Pending, onDecision: Pending['fulfil']) {
    this.caller = caller
    this.#onDecision = onDecision
  }

  get request(): Request {
    return this.caller.request
  }

  get isOver(): boolean {
    return this.caller.isOver
  }

  set isOver(isOver: boolean) {
    this.caller.isOver = isOver
  }

  get batch(): Batch | undefined {
    return this.caller.batch
  }

  set batch(batch: Batch | undefined) {
    this.caller.batch = batch
  }

  get isContended(): boolean {
    return this.caller.isContended
  }

  set isContended(isContended: boolean) {
    this.caller.isContended = isContended
  }

  hold(): void {
    this.caller.hold()
  }

  fulfil(decision: Decision, place: number): void {
    this.#onDecision(decision, place)
  }

  fail(error: RatelimitError): void {
    this.caller.fail(error)
  }
}
