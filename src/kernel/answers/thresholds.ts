import type { Limiter } from '../limits/algorithm.ts'
import type { Threshold } from '../options/choices.ts'

/** The extra facts that answers report. */
export interface ReportedFacts {
  /** Answers report which ones a call has crossed. */
  readonly thresholds: readonly Threshold[]
  /** Whether denials are only reported. */
  readonly dryRun: boolean
}

/**
 * The thresholds that are not reached with `from` used units, and are reached with `to`.
 *
 * @param capacity The limit, or what was added.
 */
export function crossedFrom(
  { algorithm: { tolerance } }: Pick<Limiter, 'algorithm'>,
  capacity: number,
  from: number,
  to: number,
  thresholds: readonly Threshold[],
): Threshold[] {
  return thresholds.filter((threshold) => {
    const isShare = typeof threshold === 'number'
    const height = isShare ? threshold : (threshold.used ?? capacity - threshold.left)
    const heightOf = (used: number) => (used + tolerance) / (isShare ? capacity : 1)
    return heightOf(from) < height && heightOf(to) >= height
  })
}

/** Each threshold once. */
export function distinctThresholds(thresholds: readonly Threshold[]): Threshold[] {
  return [...new Map(thresholds.map((threshold) => [JSON.stringify(threshold), threshold])).values()]
}
