import { onceFor } from '../base/once-for.ts'
import type { Checker } from '../check/checker.ts'
import type { Sender } from '../check/sent-call.ts'
import { telling } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { retrying } from '../database/retry.ts'
import { isWithdrawal } from '../database/sending.ts'
import { RatelimitError } from '../errors.ts'
import { afterWait, Blame } from '../runtime/blame.ts'
import { Coalescer } from '../runtime/coalescer.ts'
import { Direct } from '../runtime/direct.ts'
import { beginAnew, failAll, fulfil, halvesOf, inLockOrder, stillAsked } from '../runtime/groups.ts'
import type { CallGroup, Decider, Work } from '../runtime/queue.ts'
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

/** What sends a limiter's calls for slots. */
export const senderOf: (checker: Checker) => Sender<SlotRequest, SlotAnswer> = /* @__PURE__ */ onceFor(
  (checker) => {
    const { connections, goOn } = checker.alone
    const decider = new SlotDecider(checker)
    const dispatcher = connections ? new Coalescer(decider, connections) : new Direct(decider, new Room(true))
    return { circuit: checker.circuit, goOn, dispatcher: () => dispatcher }
  },
)

type Group = CallGroup<SlotRequest, SlotAnswer>

/** Decides requests for slots outside of transactions. */
class SlotDecider implements Decider<SlotRequest, SlotAnswer> {
  readonly #checker: Checker
  readonly canShare: typeof canShare = canShare
  readonly sameRequest: typeof sameRequest = sameRequest

  constructor(checker: Checker) {
    this.#checker = checker
  }

  async decideTogether(
    groups: readonly Group[],
    done: (group: Group) => void,
    work: Work,
  ): Promise<readonly Group[]> {
    const held: Group[] = []
    const blame = new Blame(false)
    // One of the keys may be the cause of an error, so the statement runs again in halves.
    const parts: (readonly Group[])[] = [inLockOrder(groups)]
    for (const asked of parts) {
      const part = stillAsked(asked, done)
      if (part.length === 0) continue
      const answers = blame.forAll ?? (await this.#ask(part, false, work).catch(toRatelimitError))
      if (answers instanceof RatelimitError) {
        if (isWithdrawal(answers, work.sending)) {
          beginAnew(groups, work)
          parts.push(part)
          continue
        }
        if (blame.of(answers) === 'one' && part.length > 1) parts.push(...halvesOf(part))
        else failAll(part, answers, done)
        continue
      }
      blame.passed()
      for (const [i, group] of part.entries()) {
        const answer = answers[i]
        if (answer) {
          fulfil(group, answer)
          done(group)
        } else held.push(group)
      }
    }
    return held
  }

  async decideAlone(group: Group, work: Work): Promise<void> {
    try {
      const [answer] = await this.#ask([group], true, work)
      fulfil(group, answer ?? NOTHING)
    } catch (reason) {
      const error = toRatelimitError(reason)
      if (isWithdrawal(error, work.sending)) {
        beginAnew([group], work)
        if (group.calls.length > 0) return this.decideAlone(group, work)
      }
      failAll([group], afterWait(error, true), () => {})
    }
  }

  async #ask(groups: readonly Group[], mayWait: boolean, { sending }: Work): Promise<SlotAnswers> {
    const { rows, alone } = this.#checker
    const { ensureTables, connection: home } = rows
    await ensureTables?.()
    const connection = telling(home, sending)
    return alone.watch(() => retrying(() => askForSlots(this.#checker, connection, groups, mayWait)))
  }
}
