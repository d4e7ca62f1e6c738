import { newSending, withdraw } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import type { Decision, Request } from '../store/call.ts'
import { holdIfWanted } from './blame.ts'
import type { Decider, Dispatcher, Pending, Queued } from './queue.ts'
import type { Room } from './waits.ts'

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
    const batch = { queues: [], waiting: 1 }
    const first = { ...batch, mayWait: false, sending: newSending() }
    call.batch = first
    const held = await this.#decider.decideTogether([group], () => {}, first)
    if (held.length === 0 || !holdIfWanted(call)) return
    const second = { ...batch, mayWait: true, sending: newSending() }
    call.batch = second
    await this.#decider.decideAlone(group, second)
  }

  cancel(call: Pending<R, D>): boolean {
    call.isOver = true
    return !withdraw(call.batch?.sending)
  }
}
