import type { Deadline, Timed } from '../base/deadlines.ts'
import type { At, CallTime } from './bounds.ts'
import type { Checker } from './checker.ts'

/**
 * Runs the statements of a call within the shortest `timeout` of its limiters, which is one time for all of
 * them. In a transaction a call has no timeout, and as a part of another call it has no time of its own.
 */
export async function withinTimeout<T>(
  checkers: readonly Checker[],
  at: At,
  work: (at: At) => Promise<T>,
): Promise<T> {
  const [first] = checkers
  const timeout = first && shortestTimeoutOf(checkers).alone.bounds?.time
  if (!timeout || at !== undefined || first.joined(at)) return work(at)
  const time = new RunningTime(timeout)
  try {
    return await work(time)
  } finally {
    time.stop()
  }
}

/** The limiter with the shortest `timeout`. */
export function shortestTimeoutOf(checkers: readonly Checker[]): Checker {
  return checkers.reduce((one, other) => (timeoutOf(other) < timeoutOf(one) ? other : one))
}

/** Infinity if there is none. */
function timeoutOf({ alone }: Checker): number {
  return alone.bounds?.time.ms ?? Number.POSITIVE_INFINITY
}

/** The time of a call that may take several statements. */
export class RunningTime implements CallTime, Timed {
  isOver = false
  readonly #waits = new Set<Timed>()
  readonly #deadline: Pick<Deadline, 'stop'>

  constructor(timeout: CallTime) {
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
