/** How long a lease was used, by one clock for all. */
export interface Interval {
  readonly from: number
  readonly to: number
}

/** How many of the intervals there were at once, at the most. One that ends when another begins is over. */
export function mostAtOnce(intervals: readonly Interval[]): number {
  const edges = intervals.flatMap(({ from, to }) => [
    { at: from, by: 1 },
    { at: to, by: -1 },
  ])
  let [now, most] = [0, 0]
  for (const { by } of edges.sort((a, b) => a.at - b.at || a.by - b.by)) {
    now += by
    most = Math.max(most, now)
  }
  return most
}
