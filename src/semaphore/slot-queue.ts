import { onceFor } from '../kernel/base/once.ts'
import { telling } from '../kernel/database/connection.ts'
import { retrying } from '../kernel/database/retry.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import type { Sender } from '../kernel/engine/sent-call.ts'
import { Coalescer } from '../kernel/queue/coalescer.ts'
import { Direct } from '../kernel/queue/direct.ts'
import { decideByItself, decideInHalves, inLockOrder } from '../kernel/queue/in-halves.ts'
import type { CallGroup, Decider, DeciderWork } from '../kernel/queue/queue.ts'
import { Room } from '../kernel/queue/waits.ts'
import {
  askForSlots,
  kindOf,
  SLOT_GONE,
  type SlotAnswer,
  type SlotAnswers,
  type SlotRequest,
  sameRequest,
} from './ask.ts'

/** What sends a limiter's calls for slots. */
export const senderOf: (checker: Checker) => Sender<SlotRequest, SlotAnswer> = /* @__PURE__ */ onceFor(
  (checker) => {
    const { connections, goOn } = checker.alone
    const decider = deciderOf(checker)
    const dispatcher = connections ? new Coalescer(decider, connections) : new Direct(decider, new Room(true))
    return { circuit: checker.circuit, goOn, dispatcher: () => dispatcher }
  },
)

/** Decides requests for slots outside of transactions. */
function deciderOf(checker: Checker): Decider<SlotRequest, SlotAnswer> {
  const { rows, alone } = checker
  const ask = async (
    groups: readonly CallGroup<SlotRequest, SlotAnswer>[],
    mayWait: boolean,
    { sending }: DeciderWork,
  ): Promise<SlotAnswers> => {
    await rows.ensureTables?.()
    const connection = telling(rows.connection, sending)
    return alone.watch(() => retrying(() => askForSlots(checker, connection, groups, mayWait)))
  }
  return {
    kindOf,
    sameRequest,
    decideTogether(groups, done, work) {
      const statement = { ask: (asked: typeof groups) => ask(asked, false, work), waitsBriefly: false }
      return decideInHalves([inLockOrder(groups)], statement, done, work)
    },
    decideAlone(group, work) {
      const askAlone = async () => (await ask([group], true, work))[0] ?? SLOT_GONE
      return decideByItself(group, askAlone, work)
    },
  }
}
