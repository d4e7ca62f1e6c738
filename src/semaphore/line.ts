import type { Caller, Look } from './look.ts'

/** The pause between two looks of a line for which a slot is kept, or which has found slots held. */
const SHORT_PAUSE_MS = 5

/** It grows with the time of waiting to this. Longer work leaves its slot unused for longer then. */
const MAX_SHORT_PAUSE_MS = 50

/** By how much it grows. */
const PAUSE_SHARE = 1 / 8

/** The shortest and the longest pause of other lines. */
const PAUSE_MS = [25, 75] as const

/** Looks for a slot. The line has waited for its turn since then, by the clock of the database. */
export type LookFor = (since: number | undefined, caller: Caller) => Promise<Look>

/** What a line is made of. */
export interface LineOptions {
  /** The most slots that there are. */
  readonly limit: number
  readonly lookFor: LookFor
  /** The last call has left the line. `turn` says since when a slot is kept for the line, if it is. */
  onEmpty(turn: number | undefined): void
}

/** A call that waits. */
export interface WaitingCall {
  found(look: Look): void
  failed(error: unknown): void
}

/**
 * The calls of a limiter that wait for a slot of a key under one plan. What a look finds belongs to the first
 * in line.
 *
 * There are as many looks at once as could find something, and never more than calls that wait. Slots that are
 * released in this process are looked for at once, and those of others after a pause.
 */
export class Line {
  readonly #options: LineOptions
  readonly #waiting = new Set<WaitingCall>()
  readonly #looks = new Set<Caller>()
  #last: Look
  /** When the line had its last turn, by the clock of the database, and by that of the process. */
  #since: number | undefined
  #sinceMs = performance.now()
  #timer: ReturnType<typeof setTimeout> | undefined
  /** Whether a slot was released that no look could see. */
  #hasMissed = false

  /** @param denial What the first call of the line has found. */
  constructor(options: LineOptions, denial: Look) {
    this.#options = options
    this.#last = denial
    this.#learn(denial, undefined)
  }

  /** What was found last. */
  get last(): Look {
    return this.#last
  }

  get since(): number | undefined {
    return this.#since
  }

  /** Adds a call at the end. */
  join(waiting: WaitingCall): void {
    this.#waiting.add(waiting)
    this.#rest()
  }

  leave(waiting: WaitingCall): void {
    if (!this.#waiting.delete(waiting)) return
    // What the others do not need is given back if it comes.
    for (const caller of [...this.#looks].reverse()) {
      if (this.#looks.size <= this.#waiting.size) break
      this.#looks.delete(caller)
      caller.leave?.()
    }
    this.#end()
  }

  /** A slot may be free. */
  lookForOne(): void {
    if (this.#looks.size < this.#waiting.size) this.#look()
    else this.#hasMissed = true
  }

  /** Looks for all that wait, if there may be so many slots. */
  lookForAll(): void {
    const most = Math.min(this.#waiting.size, this.#options.limit)
    while (this.#looks.size < most) this.#look()
  }

  #look(): void {
    const caller: Caller = {}
    const since = this.#since
    this.#looks.add(caller)
    const settle = (pass: () => void) => {
      if (this.#looks.delete(caller)) pass()
    }
    this.#options.lookFor(since, caller).then(
      (look) => settle(() => (look.slot ? this.#give(look) : this.#goOn(look, since))),
      (error) => settle(() => this.#next()?.failed(error)),
    )
  }

  #give(look: Look): void {
    this.#since = look.at
    this.#sinceMs = performance.now()
    this.#last = { ...look, slot: undefined, isNext: false }
    this.#next()?.found(look)
  }

  /** Takes the first call out of the line. */
  #next(): WaitingCall | undefined {
    const [first] = this.#waiting
    if (first) this.#waiting.delete(first)
    if (this.#hasMissed) this.#lookAgain()
    this.#end()
    return first
  }

  #goOn(look: Look, since: number | undefined): void {
    this.#last = look
    this.#learn(look, since)
    this.#stopTimer()
    if (this.#hasMissed) this.#lookAgain()
    this.#rest()
  }

  #lookAgain(): void {
    this.#hasMissed = false
    if (this.#waiting.size > 0) this.lookForOne()
  }

  /** A slot may be kept for the line from the time that the look has sent. */
  #learn({ isNext, at }: Look, since: number | undefined): void {
    if (isNext || this.#since === undefined) this.#since = since ?? at
  }

  #end(): void {
    if (this.#waiting.size > 0) {
      this.#rest()
      return
    }
    this.#stopTimer()
    this.#options.onEmpty(this.#last.isNext ? this.#since : undefined)
  }

  #stopTimer(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #rest(): void {
    if (this.#timer !== undefined || this.#looks.size > 0) return
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.lookForAll()
    }, this.#pauseMs())
  }

  /** It is random, so that of several processes none is always the first. */
  #pauseMs(): number {
    const { isNext, open } = this.#last
    const [min, max] = PAUSE_MS
    if (!isNext && open === 0) return min + Math.random() * (max - min)
    const waitedMs = performance.now() - this.#sinceMs
    const pauseMs = Math.min(Math.max(waitedMs * PAUSE_SHARE, SHORT_PAUSE_MS), MAX_SHORT_PAUSE_MS)
    return pauseMs * (0.5 + Math.random())
  }
}
