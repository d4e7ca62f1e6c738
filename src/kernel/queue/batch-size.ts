// How many keys or lists go into one statement, so that the server and this process work at the same time.

/** This many keys or lists are always worth a statement. */
const WORTH_ONE = 24

/**
 * Whether the `ready` keys or lists are worth one more statement. They are if they are at least as many as the
 * statements under way have, or `WORTH_ONE`.
 *
 * While the server works on one statement, calls collect for the next one. If each key were sent at once,
 * server and process would wait for each other half of the time. With few callers, no call waits for the answer
 * of another.
 */
export function isWorthOne(ready: number, underWay: number): boolean {
  return ready > 0 && ready >= Math.min(underWay, WORTH_ONE)
}

/** With this many for each slot, a burst goes to all free slots. */
const WORTH_ALL = 128

/**
 * How many of the `ready` keys go into the next statement. It is all of them in most cases.
 *
 * If none is under way, many are sent in two halves. While the server works on one half, this process works on
 * the answers of the other. The callers of a half ask again together, so the halves stay apart.
 */
export function batchShare(ready: number, underWay: number, freeSlots: number): number {
  const share = Math.max(Math.ceil(ready / freeSlots), WORTH_ALL)
  const splits = underWay === 0 && freeSlots > 1 && ready >= 2 * WORTH_ONE
  return splits ? Math.min(share, Math.ceil(ready / 2)) : share
}
