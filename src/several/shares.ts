import { TOLERANCE } from '../algorithms/bucket.ts'
import { type Snapshot, whenAvailable } from '../algorithms/search.ts'
import { availableIn, mostIn, unitsIn } from '../check/answer.ts'
import type { Call } from '../runtime/call.ts'
import type { Pays } from '../statements/list-row.ts'

/** A limit to spend from, and its state. */
export interface Source {
  readonly call: Call
  readonly snapshot: Snapshot
  /** Default: what it has. */
  readonly pays?: Pays | undefined
}

/**
 * The share of each limit in the rate. The first pays as much as it has. Undefined if together they have less
 * than the `least`.
 */
export function sharesOf(
  sources: readonly Source[],
  rate: number,
  least: number,
): readonly number[] | undefined {
  const { shares, rest } = takenFrom(sources, rate)
  return rest <= rate - least ? shares : undefined
}

/** The share of each limit, and the rest that they cannot pay. */
export function takenFrom(
  sources: readonly Source[],
  rate: number,
): { readonly shares: readonly number[]; readonly rest: number } {
  const isWhole = givesWholes(sources)
  let rest = rate
  const last = sources.at(-1)
  const shares = sources.map((source) => {
    const { call, snapshot, pays } = source
    const { limiter } = call
    if (pays === 'what it owes') {
      const owed = Math.min(availableIn(limiter, snapshot), 0)
      rest -= owed
      return owed
    }
    const isEnough = (pays === 'the rest' && source === last) || rest <= availableIn(limiter, snapshot)
    const share = isEnough ? rest : leftIn({ call, snapshot }, isWhole)
    rest = isEnough ? 0 : rest - share
    return share
  })
  const debtor = sources.findIndex(({ pays }) => pays === 'the rest')
  if (debtor < 0) return { shares, rest }
  return { shares: shares.map((share, place) => (place === debtor ? share + rest : share)), rest: 0 }
}

/** Milliseconds until the limits together have the rate, if nothing else is taken. `Infinity` if never. */
export function msUntilEnough(sources: readonly Source[], rate: number): number {
  const isWhole = givesWholes(sources)
  const has = (time: number) => {
    const left = sources.map((source) =>
      leftIn({ ...source, snapshot: { ...source.snapshot, now: time } }, isWhole),
    )
    return left.reduce((sum, each) => sum + each, TOLERANCE) >= rate
  }
  const now = Math.max(...sources.map(({ snapshot }) => snapshot.now))
  const wholeAt = sources.map(({ call: { limiter }, snapshot }) =>
    whenAvailable(limiter, snapshot, mostIn(limiter, snapshot)),
  )
  let high = Math.max(now, ...wholeAt.filter(Number.isFinite))
  if (!has(high)) return Number.POSITIVE_INFINITY
  let low = now
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2)
    if (has(middle)) high = middle
    else low = middle
  }
  return high - now
}

/**
 * Whether shares are whole units. If one gave a fraction, limits that count whole units could not pay the rest.
 */
function givesWholes(sources: readonly Source[]): boolean {
  return sources.some(({ call }) => call.limiter.algorithm.integersOnly)
}

function leftIn({ call: { limiter }, snapshot }: Source, isWhole: boolean): number {
  if (isWhole) return unitsIn(limiter, snapshot)
  const { state, now, params } = snapshot
  return Math.max(limiter.algorithm.numbers.available(state, now, params), 0)
}
