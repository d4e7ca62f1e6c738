import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import type { CallGroup, Pending } from '../kernel/queue/queue.ts'
import { requestFor } from '../kernel/store/call.ts'
import { denialsKey } from '../shared/denied-rows.ts'
import { mayHaveCharged } from '../shared/may-have-charged.ts'
import { MisraGries } from './misra-gries.ts'

/** Counts that are not written yet: of keys, and of all. */
export class Counts {
  readonly keys: MisraGries
  total = 0

  /** @param top How many keys are counted at a time. */
  constructor(top: number) {
    this.keys = new MisraGries(top)
  }

  get isEmpty(): boolean {
    return this.keys.size === 0 && this.total === 0
  }

  /** Moves all counts to others. */
  moveTo(others: readonly Counts[]): void {
    const keys = this.keys.takeAll()
    for (const other of others) {
      for (const [key, times] of keys) other.keys.add(key, times)
      other.total += this.total
    }
    this.total = 0
  }

  /** What the next write adds to the rows of a time. What it could not add is counted again. */
  takeAll(time: string, limiter: StoredLimiter): CallGroup[] {
    const { total } = this
    this.total = 0
    const adding = [...this.keys.takeAll()].map(([key, times]) =>
      addition(denialsKey(time, key), limiter, times, () => this.keys.add(key, times)),
    )
    if (total === 0) return adding
    const addingAll = addition(denialsKey(time), limiter, total, () => {
      this.total += total
    })
    return [...adding, addingAll]
  }
}

/** Adds to a row. `keep` is called if that was certainly not done. */
function addition(key: string, limiter: StoredLimiter, times: number, keep: () => void): CallGroup {
  const request = requestFor(key, limiter, 'take', times)
  const pending: Pending = {
    request,
    isOver: false,
    batch: undefined,
    isContended: false,
    hold: keep,
    fulfil: () => {},
    fail: (error) => {
      if (!mayHaveCharged(error)) keep()
    },
  }
  return { request, calls: [pending] }
}
