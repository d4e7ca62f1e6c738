import { forEachChecker } from '../check/beside.ts'
import type { Checker } from '../check/checker.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { retrying } from '../database/retry.ts'
import type { RatelimitError } from '../errors.ts'
import { Blame } from '../runtime/blame.ts'
import type { Batch, CallGroup, Decider, Dispatcher, Pending } from '../runtime/call.ts'
import { Coalescer } from '../runtime/coalescer.ts'
import { failAll, fulfil, inLockOrder } from '../runtime/decide.ts'
import { Direct } from '../runtime/direct.ts'
import { watchWait } from '../runtime/long-waits.ts'
import { Room } from '../runtime/room.ts'
import {
  askForSlots,
  canShare,
  NOTHING,
  type SlotAnswer,
  type SlotAnswers,
  type SlotRequest,
  sameRequest,
} from './ask.ts'

/** An answer, and the position of a call among the equal calls that got it. The first is 0. */
export interface Placed {
  readonly answer: SlotAnswer
  readonly place: number
}

/** A request on its way to the database. */
export class SlotCall implements Pending<SlotRequest, SlotAnswer> {
  readonly request: SlotRequest
  isOver = false
  batch: Batch<SlotRequest, SlotAnswer> | undefined = undefined
  isContended = false
  readonly placed: Promise<Placed>
  #resolve: (placed: Placed) => void = () => {}
  #reject: (error: RatelimitError) => void = () => {}

  constructor(request: SlotRequest) {
    this.request = request
    this.placed = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  hold(): void {
    this.isContended = true
  }

  fulfil(answer: SlotAnswer, place: number): void {
    this.#resolve({ answer, place })
  }

  fail(error: RatelimitError): void {
    this.#reject(error)
  }
}

/** The queue of a limiter's calls. */
export const dispatcherOf: (checker: Checker) => Dispatcher<SlotRequest, SlotAnswer> =
  /* @__PURE__ */ forEachChecker((checker) => {
    const { connections } = checker.config
    const decider = new SlotDecider(checker)
    return connections ? new Coalescer(decider, connections) : new Direct(decider, new Room(true))
  })

type Group = CallGroup<SlotRequest, SlotAnswer>

/** Decides requests for slots outside of transactions. */
class SlotDecider implements Decider<SlotRequest, SlotAnswer> {
  readonly #checker: Checker
  readonly canShare: typeof canShare = canShare
  readonly sameRequest: typeof sameRequest = sameRequest

  constructor(checker: Checker) {
    this.#checker = checker
  }

  async decideTogether(groups: readonly Group[], done: (group: Group) => void): Promise<readonly Group[]> {
    const sorted = inLockOrder(groups)
    let answers: SlotAnswers
    try {
      answers = await this.#ask(sorted, false)
    } catch (reason) {
      const error = toRatelimitError(reason)
      // One of the keys may be the cause, so each is tried by itself.
      if (sorted.length > 1 && new Blame(false).of(error) === 'one') return sorted
      failAll(sorted, error, done)
      return []
    }
    return sorted.filter((group, i) => {
      const answer = answers[i]
      if (!answer) return true
      fulfil(group, answer)
      done(group)
      return false
    })
  }

  async decideAlone(group: Group): Promise<void> {
    try {
      const [answer] = await this.#ask([group], true)
      fulfil(group, answer ?? NOTHING)
    } catch (reason) {
      failAll([group], toRatelimitError(reason), () => {})
    }
  }

  async #ask(groups: readonly Group[], mayWait: boolean): Promise<SlotAnswers> {
    const { ensureTables, home } = this.#checker.config
    await ensureTables?.()
    return watchWait(() => retrying(() => askForSlots(this.#checker, home, groups, mayWait)))
  }
}
