import { ConnectionSlots } from './slots.ts'

/** Work that begins, in its order, when there is a slot for it. */
export class SlotsInTurn<Work extends object> extends ConnectionSlots {
  /** What to call when it begins. */
  readonly #waiting = new Map<Work, () => void>()

  constructor(count: number) {
    super(count, () => this.start())
  }

  enter(work: Work, begin: () => void): void {
    this.#waiting.set(work, begin)
  }

  start(): void {
    for (const [work, begin] of this.#waiting) {
      if (!this.hasRoom()) return
      this.#waiting.delete(work)
      this.take(work)
      begin()
    }
  }

  /** No caller waits for it any more. If it has not begun, it goes on without a slot, and sends nothing. */
  override abandon(work: Work): void {
    this.#waiting.get(work)?.()
    this.remove(work)
    super.abandon(work)
  }

  remove(work: Work): void {
    this.#waiting.delete(work)
    if (this.#waiting.size === 0) this.stopWaiting()
  }
}
