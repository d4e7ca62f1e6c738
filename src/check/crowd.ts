import type { Room } from '../runtime/room.ts'
import { type Bounds, timedOut, watchBounds } from './bounds.ts'

/** Calls that wait for the database on their own, outside of the queue: so many at once, and so long. */
export class Crowd {
  readonly #bounds: Bounds | undefined
  readonly #room: Room

  constructor(bounds: Bounds | undefined, room: Room) {
    this.#bounds = bounds
    this.#room = room
  }

  /**
   * Runs the work within the time. When the time is over, the call fails, and `isOver` says so to the work;
   * `isCharging` says whether the work may have an effect by then.
   */
  async admit<T>(
    work: (isOver: () => boolean) => Promise<T>,
    isCharging: () => boolean = () => true,
  ): Promise<T> {
    const leave = this.#room.enter()
    let isOver = false
    const running = work(() => isOver).finally(leave)
    if (!this.#bounds) return running
    const bounds = this.#bounds
    return new Promise((resolve, reject) => {
      const stopWatching = watchBounds(bounds, () => {
        isOver = true
        reject(timedOut(isCharging()))
      })
      running.then(resolve, reject).finally(stopWatching)
    })
  }
}
