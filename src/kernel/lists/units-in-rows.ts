import type { Connection } from '../database/connection.ts'
import { type CallTime, isCallTime } from '../engine/bounds.ts'
import type { Checker, LimiterCall } from '../engine/checker.ts'
import { withinTimeout } from '../engine/within-timeout.ts'

/** Calls that are decided together. */
export interface Listed {
  readonly calls: readonly LimiterCall[]
  readonly checkers: readonly Checker[]
  /** The transaction that they join. */
  readonly joined: Connection | undefined
  /** The time of the whole call, if it takes more than this list. */
  readonly time: CallTime | undefined
}

/**
 * Works while this process has no units of the calls' keys in memory: a list has to find them in the rows. They
 * come back within the time of the call. In a caller's transaction they count as used, because they cannot come
 * back by it.
 */
export function withUnitsInRows<T>(
  { calls, checkers, joined, time: own }: Listed,
  work: (time: CallTime | undefined) => Promise<T>,
): Promise<T> {
  const holding = calls.filter(({ checker, call }) => checker.inAdvance && call.purpose !== 'look' && !joined)
  if (holding.length === 0) return work(own)
  return withinTimeout(checkers, own, async (at) => {
    const time = isCallTime(at) ? at : undefined
    const withheld = holding.flatMap(({ checker, call }) => checker.inAdvance?.withhold(call.key) ?? [])
    const returned = Promise.all(withheld.map((each) => each.returned))
    try {
      await (time ? untilOver(time, returned) : returned)
      return await work(time)
    } finally {
      for (const { end } of withheld) end()
    }
  })
}

/** Waits until the work or the time is over. */
function untilOver(time: CallTime, work: Promise<unknown>): Promise<void> {
  return new Promise((resolve) => {
    const deadline = time.begin({ over: resolve })
    work.then(() => {
      deadline.stop()
      resolve()
    })
  })
}
