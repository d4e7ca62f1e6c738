import { toRatelimitError } from '../database/database-error.ts'
import type { Decision, Request } from './call.ts'
import type { Decider, Dispatcher, Pending, Queued } from './queue.ts'
import type { Room } from './room.ts'

/**
 * Sends each call at once, in a statement of its own.
 *
 * In Workers, a promise hangs if the I/O of another request resolves it. So these calls share only plain data.
 */
export class Direct<R extends Queued = Request, D = Decision> implements Dispatcher<R, D> {
  readonly #decider: Decider<R, D>
  readonly #room: Room

  constructor(decider: Decider<R, D>, room: Room) {
    this.#decider = decider
    this.#room = room
  }

  add(call: Pending<R, D>): void {
    try {
      const leave = this.#room.enter(call.request.key)
      this.#decide(call).then(leave)
    } catch (error) {
      call.fail(toRatelimitError(error))
    }
  }

  /** The first try does not wait for the row. It shows whether others hold the row. */
  async #decide(call: Pending<R, D>): Promise<void> {
    const group = { request: call.request, calls: [call] }
    call.batch = { queues: [], mayWait: false, waiting: 1 }
    const held = await this.#decider.decideTogether([group], () => {})
    if (held.length === 0) return
    call.hold()
    call.batch = { queues: [], mayWait: true, waiting: 1 }
    await this.#decider.decideAlone(group)
  }

  cancel(call: Pending<R, D>): boolean {
    call.isOver = true
    return true
  }
}
