import { availableIn, unitsIn } from '../answers/capacity.ts'
import { TOLERANCE } from '../limits/bucket.ts'
import type { Snapshot } from '../limits/search.ts'
import type { Pays } from '../sql/list-row.ts'
import type { Call } from '../store/call.ts'

/** A limit to spend from, and its state. */
export interface Source {
  readonly call: Call
  readonly snapshot: Snapshot
  /** Default: what it has. */
  readonly pays?: Pays | undefined
  /** Unix milliseconds from which it has nothing. Default: never. */
  readonly endsAt?: number | undefined
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
  return rest <= spareOf({ rate, least }) ? shares : undefined
}

/**
 * How much of a group's rate need not be paid. What the rows have may add up to a little less than the least,
 * because it is rounded.
 */
export function spareOf({ rate, least }: { readonly rate: number; readonly least: number }): number {
  return rate === least ? 0 : rate - least + TOLERANCE
}

/** The share of each limit, and the rest that they cannot pay. */
export function takenFrom(
  sources: readonly Source[],
  rate: number,
): { readonly shares: readonly number[]; readonly rest: number } {
  const isWhole = givesWholes(sources)
  let rest = rate
  let paysDebt = false
  const last = sources.at(-1)
  const shares = sources.map((source, place) => {
    const { call, snapshot, pays } = source
    const { limiter } = call
    if (pays === 'debt') {
      paysDebt = rest > 0 && leftBeyondDebt(sources, place) > 0
      const owed = paysDebt ? Math.min(availableIn(limiter, snapshot), 0) : 0
      rest -= owed
      return owed
    }
    if (pays === 'available after debt' && !paysDebt) return 0
    const isEnough = (pays === 'rest as debt' && source === last) || rest <= availableIn(limiter, snapshot)
    const share = isEnough ? rest : leftIn({ call, snapshot }, isWhole)
    rest = isEnough ? 0 : rest - share
    return share
  })
  const debtor = sources.findIndex(({ pays }) => pays === 'rest as debt')
  if (debtor < 0) return { shares, rest }
  return { shares: shares.map((share, place) => (place === debtor ? share + rest : share)), rest: 0 }
}

/** What those that pay for the debt at the place have beyond it. Below 0 if they have less. */
export function leftBeyondDebt(sources: readonly Source[], debt: number): number {
  const after = sources.slice(debt + 1)
  const end = after.findIndex(({ pays }) => pays !== 'available after debt')
  const owing = sources.slice(debt, end < 0 ? sources.length : debt + 1 + end)
  return owing.reduce((sum, { call, snapshot }) => sum + availableIn(call.limiter, snapshot), 0)
}

/**
 * Whether shares are whole units. If one gave a fraction, limits that count whole units could not pay the rest.
 */
export function givesWholes(sources: readonly Source[]): boolean {
  return sources.some(({ call }) => call.limiter.algorithm.integersOnly)
}

export function leftIn({ call: { limiter }, snapshot }: Source, isWhole: boolean): number {
  if (isWhole) return unitsIn(limiter, snapshot)
  const { state, now, params } = snapshot
  return Math.max(limiter.algorithm.numbers.available(state, now, params), 0)
}
