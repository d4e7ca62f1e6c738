// The only timers that end a wait. Timers run before the process reads what has arrived. So when a process was
// busy, a timer alone cannot tell a slow database from an answer that nobody has read.

/** What comes later than this after its time shows that the process was busy. */
const LATE_MS = 10

/** In so many steps the time of a deadline passes. In each, the process reads what has arrived. */
const STEPS = 10

/**
 * The longest timer. A longer one fires at once.
 * https://developer.mozilla.org/docs/Web/API/Window/setTimeout#maximum_delay_value
 */
export const MAX_TIMER_MS: number = 2 ** 31 - 1

export interface Timed {
  /** Its time is over. It must not throw. */
  over(): void
}

export class Deadline {
  readonly timed: Timed
  /** In the time in which the process was not busy. */
  readonly endsAtMs: number
  before: Deadline | undefined = undefined
  after: Deadline | undefined = undefined
  readonly #own: Deadlines

  constructor(own: Deadlines, timed: Timed, endsAtMs: number) {
    this.#own = own
    this.timed = timed
    this.endsAtMs = endsAtMs
  }

  /** Stops it, or does nothing if it is over. */
  stop(): void {
    this.#own.stop(this)
  }
}

/**
 * Begins waits of one length.
 *
 * @param isShared Whether they share a timer, because one for each call costs too much. In Workers it would end
 * with the request that set it.
 * @param keepsAlive Whether a wait keeps the process alive.
 */
export function waitsOf(ms: number, isShared: boolean, keepsAlive = true): (timed: Timed) => Deadline {
  const deadlines = () => new Deadlines(ms, isShared, keepsAlive)
  const shared = isShared ? deadlines() : undefined
  return (timed) => (shared ?? deadlines()).start(timed)
}

/**
 * Deadlines of one length, which have one timer. They are linked: in a map, the garbage collector would keep
 * calls that have ended.
 *
 * Time in which the process was busy does not count: of a step that comes late, only its own length does. And
 * no deadline ends in the first late step, because what arrived meanwhile is read after it. So in a process
 * that is always busy a deadline ends after eleven of its tasks.
 */
class Deadlines {
  readonly #ms: number
  readonly #stepMs: number
  readonly #isShared: boolean
  readonly #keepsAlive: boolean
  #first: Deadline | undefined
  #last: Deadline | undefined
  #timer: ReturnType<typeof setTimeout> | undefined
  /** The function that has set the timer. Fake timers replace it. */
  #setBy: typeof setTimeout | undefined
  /** How long the process was not busy, up to the last step. */
  #countedMs = 0
  #steppedAtMs = 0
  #wholeMs = 0

  constructor(ms: number, isShared: boolean, keepsAlive: boolean) {
    this.#ms = ms
    this.#stepMs = ms / STEPS
    this.#isShared = isShared
    this.#keepsAlive = keepsAlive
  }

  start(timed: Timed): Deadline {
    const nowMs = performance.now()
    if (!this.#first) this.#wake(nowMs)
    // A step that is late already will count with its own length only.
    const sinceStepMs = Math.min(nowMs - this.#steppedAtMs, this.#wholeMs + LATE_MS)
    const deadline = new Deadline(this, timed, this.#countedMs + sinceStepMs + this.#ms)
    deadline.before = this.#last
    if (this.#last) this.#last.after = deadline
    else this.#first = deadline
    this.#last = deadline
    return deadline
  }

  stop(deadline: Deadline): void {
    const { before, after } = deadline
    if (!before && this.#first !== deadline) return
    if (before) before.after = after
    else this.#first = after
    if (after) after.before = before
    else this.#last = before
    deadline.before = undefined
    deadline.after = undefined
    if (!this.#first) this.#rest()
  }

  /** The timer runs on to the end of its step, because a new one for each of the next calls costs too much. */
  #rest(): void {
    // In some runtimes the timer is a number, which would keep the process alive.
    if (this.#isShared && this.#timer?.unref) this.#timer.unref()
    else this.#stopTimer()
  }

  #wake(nowMs: number): void {
    if (!this.#timer || this.#setBy !== setTimeout) this.#stepIn(this.#stepMs, nowMs)
    else if (this.#keepsAlive) this.#timer.ref()
  }

  #stopTimer(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  /** Timers count whole milliseconds. */
  #stepIn(ms: number, nowMs: number): void {
    this.#stopTimer()
    this.#wholeMs = Math.max(1, Math.ceil(ms))
    this.#steppedAtMs = nowMs
    this.#timer = setTimeout(() => this.#step(), this.#wholeMs)
    this.#setBy = setTimeout
    if (!this.#keepsAlive) this.#timer.unref?.()
  }

  #step(): void {
    const nowMs = performance.now()
    const tookMs = nowMs - this.#steppedAtMs
    const wasBusy = tookMs > this.#wholeMs + LATE_MS
    const readMs = this.#countedMs
    // A timer that is early by the clock is right: with fake timers, the clock may be another one.
    this.#countedMs += wasBusy ? this.#wholeMs : Math.max(tookMs, this.#wholeMs)
    this.#steppedAtMs = nowMs
    this.#end(wasBusy ? readMs : this.#countedMs)
    if (!this.#first) {
      this.#timer = undefined
      return
    }
    const leftMs = this.#first.endsAtMs - this.#countedMs
    this.#stepIn(leftMs > 0 ? Math.min(leftMs, this.#stepMs) : this.#stepMs, nowMs)
  }

  /** Ends the deadlines up to this time. Timers count whole milliseconds. */
  #end(untilMs: number): void {
    while (this.#first && this.#first.endsAtMs < untilMs + 0.5) {
      const { timed } = this.#first
      this.stop(this.#first)
      timed.over()
    }
  }
}
