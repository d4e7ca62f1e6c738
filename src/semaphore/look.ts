import type { Bounds } from '../kernel/engine/bounds.ts'
import type { Slot, SlotAnswer } from './ask.ts'

/** What a call found that wants a slot. */
export interface Look extends Omit<SlotAnswer, 'slots'> {
  readonly slot: Slot | undefined
  /** Whether the answer came so late that the work could not begin. The slot was released again. */
  readonly isLate: boolean
}

/** Who waits for a look. */
export interface Caller {
  /** Default: those of the limiter. */
  readonly bounds?: Bounds<never>
  /** Takes the look out of the queue. If it was sent, the queue goes on without it. */
  leave?: () => void
}
