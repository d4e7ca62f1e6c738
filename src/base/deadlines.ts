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

/** What has a deadline. */
export interface Timed {
  /** Its time is over. It must not throw. */
  over(): void
}

/** When a wait ends. */
export class Deadline {
  readonly timed: Timed
  readonly endsAtMs: number
  before: Deadline | undefined = undefined
  after: Deadline | undefined = undefined
  isPending = true

  constructor(timed: Timed, endsAtMs: number) {
    this.timed = timed
    this.endsAtMs = endsAtMs
  }
}

/**
 * Deadlines of one length, which share a timer.
 *
 * Time in which the process was busy does not count: of a step that comes late, only its own length does. And a
 * deadline never ends in a late step, because what arrived meanwhile is read after it. So in a process that is
 * always busy a deadline ends after eleven of its tasks.
 */
export class Deadlines {
  readonly #ms: number
  readonly #stepMs: number
  readonly #keepsAlive: boolean
  // A list that links its entries: they come and go with each call, and mostly the first one goes.
  #first: Deadline | undefined
  #last: Deadline | undefined
  #timer: ReturnType<typeof setTimeout> | undefined
  /** When the timer is due. */
  #dueAtMs = 0
  /** The time in which the process was busy. */
  #lostMs = 0
  /** The counted time at the last step. The process has read since then. */
  #steppedAtMs = Number.NEGATIVE_INFINITY

  /** @param keepsAlive Whether the timer keeps the process from ending. */
  constructor(ms: number, keepsAlive = true) {
    this.#ms = ms
    this.#stepMs = ms / STEPS
    this.#keepsAlive = keepsAlive
  }

  start(timed: Timed): Deadline {
    const deadline = new Deadline(timed, performance.now() - this.#lostMs + this.#ms)
    if (this.#last) {
      deadline.before = this.#last
      this.#last.after = deadline
    } else this.#first = deadline
    this.#last = deadline
    if (this.#timer === undefined) {
      this.#steppedAtMs = Number.NEGATIVE_INFINITY
      this.#stepIn(this.#stepMs)
    }
    return deadline
  }

  /** Ends the deadline early, or does nothing if it is over. */
  stop(deadline: Deadline): void {
    if (!deadline.isPending) return
    this.#remove(deadline)
    if (this.#first) return
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #remove(deadline: Deadline): void {
    const { before, after } = deadline
    if (before) before.after = after
    else this.#first = after
    if (after) after.before = before
    else this.#last = before
    // What has left the list must keep nothing else in memory.
    deadline.before = deadline.after = undefined
    deadline.isPending = false
  }

  #stepIn(ms: number): void {
    const wholeMs = Math.max(1, Math.ceil(ms))
    this.#dueAtMs = performance.now() + wholeMs
    this.#timer = setTimeout(() => this.#step(), wholeMs)
    // In some runtimes the timer is a number.
    if (!this.#keepsAlive) this.#timer.unref?.()
  }

  #step(): void {
    const now = performance.now()
    const lateMs = now - this.#dueAtMs
    const wasBusy = lateMs > LATE_MS
    // A timer that is early by the clock is right: with fake timers, the clock may be another one.
    if (wasBusy || lateMs < 0) this.#lostMs += lateMs
    const before = this.#steppedAtMs
    const counted = now - this.#lostMs
    this.#steppedAtMs = counted
    this.#end(wasBusy ? before : counted)
    if (!this.#first) this.#timer = undefined
    else {
      const leftMs = this.#first.endsAtMs - counted
      this.#stepIn(leftMs > 0 ? Math.min(leftMs, this.#stepMs) : this.#stepMs)
    }
  }

  /** Ends the deadlines up to this counted time. Timers count whole milliseconds. */
  #end(untilMs: number): void {
    while (this.#first && this.#first.endsAtMs < untilMs + 0.5) {
      const { timed } = this.#first
      this.#remove(this.#first)
      timed.over()
    }
  }
}

/** Calls `over` when a time of its own has passed. Returns a function that stops it. No call takes weeks. */
export function startDeadline(ms: number, over: () => void): () => void {
  if (ms > MAX_TIMER_MS) return () => {}
  const own = new Deadlines(ms)
  const deadline = own.start({ over })
  return () => own.stop(deadline)
}

/**
 * Does work at a time by the clock, busy or not. If the process was busy then, it first reads what has arrived,
 * and nothing more. The timer does not keep the process alive.
 *
 * @returns A function that stops it.
 */
export function doAfter(ms: number, work: () => void): () => void {
  const dueAtMs = performance.now() + ms
  let timer = setTimeout(() => {
    if (performance.now() - dueAtMs <= LATE_MS) work()
    else {
      timer = setTimeout(work, 1)
      timer.unref?.()
    }
  }, ms)
  timer.unref?.()
  return () => clearTimeout(timer)
}
