import { mostIn } from '../kernel/answers/capacity.ts'
import { TOLERANCE } from '../kernel/limits/bucket.ts'
import { whenAvailable } from '../kernel/limits/search.ts'
import { givesWholes, leftBeyondDebt, leftIn, type Source } from '../kernel/lists/shares.ts'

/** What each gives back of the amount. The last one gives back first. */
export function lastFirst(paid: readonly number[], amount: number): readonly number[] {
  let rest = Math.max(amount, 0)
  const returned = paid.toReversed().map((each) => {
    const part = Math.max(Math.min(each, rest), 0)
    rest -= part
    return part
  })
  return returned.toReversed()
}

/**
 * Milliseconds until the limits together have the rate, if nothing else is taken. `Infinity` if never.
 *
 * @param blockedUntil Unix milliseconds until which nothing can be taken. 0 if something can be taken now.
 */
export function msUntilEnough(sources: readonly Source[], rate: number, blockedUntil: number): number {
  const isWhole = givesWholes(sources)
  const has = (time: number) => {
    const then = sources.map((source) => ({ ...source, snapshot: { ...source.snapshot, now: time } }))
    const left = then.map((source, place) => {
      if (source.pays === 'debt') return Math.max(leftBeyondDebt(then, place), 0)
      return source.pays === 'available after debt' ? 0 : leftIn(source, isWhole)
    })
    return left.reduce((sum, each) => sum + each, TOLERANCE) >= rate
  }
  const now = Math.max(...sources.map(({ snapshot }) => snapshot.now))
  const from = Math.max(now, blockedUntil)
  const wholeAt = sources.map(({ call: { limiter }, snapshot }) =>
    whenAvailable(limiter, snapshot, mostIn(limiter, snapshot)),
  )
  const last = Math.max(from, ...wholeAt.filter(Number.isFinite))
  const ends = sources.flatMap(({ endsAt }) => (endsAt !== undefined && endsAt < last ? [endsAt] : []))
  // What they have together grows, except where one of them ends.
  const highs = [...ends.toSorted((one, other) => one - other).map((end) => end - 1), last]
  const first = highs.find((time) => time >= from && has(time))
  if (first === undefined) return Number.POSITIVE_INFINITY
  if (has(from)) return from - now
  let [low, high] = [Math.max(from, ...highs.filter((time) => time < first)), first]
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2)
    if (has(middle)) high = middle
    else low = middle
  }
  return high - now
}
