import { onceFor } from '../kernel/base/once.ts'
import { telling } from '../kernel/database/connection.ts'
import { retrying } from '../kernel/database/retry.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import type { Sender } from '../kernel/engine/sent-call.ts'
import { Blame } from '../kernel/queue/blame.ts'
import { Coalescer } from '../kernel/queue/coalescer.ts'
import { Direct } from '../kernel/queue/direct.ts'
import { HalvingDecider, inLockOrder, type StatementGroups } from '../kernel/queue/halving-decider.ts'
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
    const decider = new SlotDecider(checker)
    const dispatcher = connections ? new Coalescer(decider, connections) : new Direct(decider, new Room(true))
    return { circuit: checker.circuit, goOn, dispatcher: () => dispatcher }
  },
)

type SlotGroup = CallGroup<SlotRequest, SlotAnswer>

/** Decides requests for slots outside of transactions. */
class SlotDecider
  extends HalvingDecider<SlotRequest, SlotAnswer, StatementGroups<SlotRequest, SlotAnswer>>
  implements Decider<SlotRequest, SlotAnswer>
{
  readonly #checker: Checker
  readonly kindOf: typeof kindOf = kindOf
  readonly sameRequest: typeof sameRequest = sameRequest

  constructor(checker: Checker) {
    super()
    this.#checker = checker
  }

  decideTogether(
    groups: readonly SlotGroup[],
    done: (group: SlotGroup) => void,
    work: DeciderWork,
  ): Promise<readonly SlotGroup[]> {
    return this.decideParts([{ groups: inLockOrder(groups) }], done, work, new Blame(false))
  }

  protected ask(
    { groups }: StatementGroups<SlotRequest, SlotAnswer>,
    work: DeciderWork,
  ): Promise<SlotAnswers> {
    return this.#ask(groups, false, work)
  }

  protected async askAlone(group: SlotGroup, work: DeciderWork): Promise<SlotAnswer> {
    return (await this.#ask([group], true, work))[0] ?? SLOT_GONE
  }

  async #ask(groups: readonly SlotGroup[], mayWait: boolean, { sending }: DeciderWork): Promise<SlotAnswers> {
    const { rows, alone } = this.#checker
    const { ensureTables, connection: home } = rows
    await ensureTables?.()
    const connection = telling(home, sending)
    return alone.watch(() => retrying(() => askForSlots(this.#checker, connection, groups, mayWait)))
  }
}
