import { RatelimitError } from '../errors.ts'
import { type Call, type Decision, type Of, of } from './decide.ts'
import { type Group, Queue } from './queue.ts'

/** What became of a call: its group's decision, and its place among the group's equal calls. */
export interface Outcome {
  readonly decision: Decision
  readonly place: number
}

/** Decides groups of calls in one statement. */
export type Decide = <C extends Call>(
  groups: readonly Group<C>[],
) => Promise<Of<Group<C>, Decision | RatelimitError>>

/** Statements under way at once: each holds a connection of the application's pool. */
const MOST_STATEMENTS = 2

/** Keys in one statement: enough for any burst, few enough to stay short. */
const MOST_KEYS = 500

/** Calls that may wait: a fraction of a second's work. Behind more of them an answer comes too late to be worth the memory. */
const MOST_WAITING = 10_000

/** For how long nobody gets an aside after one that found nothing more to do; it costs checks a place. */
const REST_MS = 50

/** Fewer keys than this are not worth another statement. */
const LEAST_SHARE = 8

/** Says whether all is done, or there may be more of it. */
type Aside = () => Promise<boolean>

interface Waiting extends Call {
  settle(outcome: Outcome): void
  fail(error: unknown): void
}

/**
 * Lets calls that arrive while checks are under way share the next statement.
 *
 * There is no timer: a call that finds room goes at the end of this turn of the event loop, with those that came in it.
 */
export class Coalescer {
  readonly #decide: Decide
  readonly #queue = new Queue<Waiting>()
  #aside: Aside | undefined
  #running = 0
  #stepping = false
  #restsUntil = Number.NEGATIVE_INFINITY
  #starting = false

  constructor(decide: Decide) {
    this.#decide = decide
  }

  /**
   * Decides the call in the next statement that has room for it.
   *
   * @throws RatelimitError `OVERLOADED`
   */
  add(call: Call): Promise<Outcome> {
    return new Promise((settle, fail) => {
      if (this.#queue.size >= MOST_WAITING) throw overloaded()
      this.#queue.add({ ...call, settle, fail })
      this.#startSoon()
    })
  }

  /** Runs something that nobody waits for in one of the statements' places, once for all who ask meanwhile and soon after. */
  addAside(job: Aside): void {
    if (performance.now() < this.#restsUntil) return
    this.#aside ??= job
    this.#startSoon()
  }

  #startSoon(): void {
    if (this.#starting || this.#running === MOST_STATEMENTS) return
    this.#starting = true
    queueMicrotask(() => {
      this.#starting = false
      this.#start()
    })
  }

  #start(): void {
    while (this.#running < MOST_STATEMENTS) {
      const job = this.#next()
      if (!job) return
      this.#running++
      job.finally(() => {
        this.#running--
        this.#start()
      })
    }
  }

  #next(): Promise<void> | undefined {
    if (this.#aside && this.#mayStepAside()) return this.#stepAside(this.#aside)
    const groups = this.#queue.take(this.#running === 0 ? this.#share() : MOST_KEYS)
    return groups.length > 0 ? this.#decideAll(groups) : undefined
  }

  /** The aside goes beside a check or when nothing waits, and alone of its kind: one place is always for checks. */
  #mayStepAside(): boolean {
    return !this.#stepping && (this.#running > 0 || this.#queue.size === 0)
  }

  /** A burst that finds both places free goes by both: the server works on its halves at once. */
  #share(): number {
    const half = Math.ceil(this.#queue.readyKeys / MOST_STATEMENTS)
    return half < LEAST_SHARE ? MOST_KEYS : Math.min(half, MOST_KEYS)
  }

  async #stepAside(job: Aside): Promise<void> {
    this.#aside = undefined
    this.#stepping = true
    let done = true
    try {
      done = await job()
    } catch {
      // Nobody waits for it; the next one tries again.
    } finally {
      this.#stepping = false
      if (done) this.#rest()
    }
  }

  #rest(): void {
    this.#aside = undefined
    this.#restsUntil = performance.now() + REST_MS
  }

  async #decideAll(groups: readonly Group<Waiting>[]): Promise<void> {
    try {
      const outcomes = await this.#decide(groups)
      for (const group of groups) {
        const decision = of(group, outcomes)
        for (const [place, { settle, fail }] of group.members.entries()) {
          if (decision instanceof RatelimitError) fail(decision)
          else settle({ decision, place })
        }
      }
    } catch (error) {
      for (const { members } of groups) for (const { fail } of members) fail(error)
    } finally {
      this.#queue.done(groups)
    }
  }
}

function overloaded(): RatelimitError {
  return new RatelimitError(
    'OVERLOADED',
    `${MOST_WAITING} calls of this limiter wait for the database already. This one was not sent, and nothing was charged.`,
  )
}
