import type { Deadline, Timed } from '../base/deadlines.ts'

/** When waits are over. */
export interface CallDeadline {
  readonly isOver: boolean
  /** Begins a wait, which is told when the time is over. */
  begin(timed: Timed): Pick<Deadline, 'stop'>
}

/** The time of a call that may take several statements. */
export class CallTime implements CallDeadline, Timed {
  isOver = false
  readonly #waits = new Set<Timed>()
  readonly #deadline: Pick<Deadline, 'stop'>

  constructor(timeout: CallDeadline) {
    this.#deadline = timeout.begin(this)
  }

  begin(timed: Timed): Pick<Deadline, 'stop'> {
    this.#waits.add(timed)
    return { stop: () => this.#waits.delete(timed) }
  }

  over(): void {
    this.isOver = true
    for (const timed of this.#waits) timed.over()
  }

  /** The call has ended. */
  stop(): void {
    this.#deadline.stop()
  }
}
