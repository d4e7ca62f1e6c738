import { toRatelimitError } from '../database/database-error.ts'
import type { Decider, Dispatcher, Pending } from './call.ts'
import type { Room } from './room.ts'

/**
 * Sends each call at once, in a statement of its own, which may wait for its row.
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
      const leave = this.#room.enter()
      this.#decider.decideAlone({ request: call.request, calls: [call] }).then(leave)
    } catch (error) {
      call.fail(toRatelimitError(error))
    }
  }

  /** A look takes no lock. Nobody knows of other calls whether they wait for a row. */
  cancel(call: Pending): { readonly wasSent: boolean; readonly isHeld: boolean } {
    call.isOver = true
    return { wasSent: true, isHeld: call.request.purpose !== 'look' }
  }
}
