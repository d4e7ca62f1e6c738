import { toRatelimitError } from '../database/database-error.ts'
import type { Decider, Dispatcher, Pending } from './call.ts'
import type { Room } from './room.ts'

/**
 * Sends each call at once, in a statement of its own.
 *
 * In Workers a promise hangs if the I/O of another request resolves it. So calls share only plain data here.
 */
export class Direct implements Dispatcher {
  readonly #decider: Decider
  readonly #room: Room

  constructor(decider: Decider, room: Room) {
    this.#decider = decider
    this.#room = room
  }

  add(call: Pending): void {
    try {
      const leave = this.#room.enter(call.request.key)
      this.#decide(call).then(leave)
    } catch (error) {
      call.fail(toRatelimitError(error))
    }
  }

  /** First without waiting for its row: so it is known whether others hold it. */
  async #decide(call: Pending): Promise<void> {
    const group = { request: call.request, calls: [call] }
    call.trip = { lines: [], mayWait: false, waiting: 1 }
    const held = await this.#decider.decideTogether([group], () => {})
    if (held.length === 0) return
    call.hold()
    call.trip = { lines: [], mayWait: true, waiting: 1 }
    await this.#decider.decideAlone(group)
  }

  cancel(call: Pending): boolean {
    call.isOver = true
    return true
  }
}
