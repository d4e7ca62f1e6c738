/** A count for people. */
export function inDigits(count: number): string {
  if (!Number.isFinite(count)) return '∞'
  return count.toLocaleString('en-US', { maximumFractionDigits: 1 })
}

/** How long it is from `now` until a time, in one unit. */
export function inTime(time: number, now: number): string {
  if (!Number.isFinite(time)) return 'never'
  const seconds = Math.max(0, Math.ceil((time - now) / 1000))
  if (seconds < 100) return `${seconds} s`
  if (seconds < 6000) return `${Math.ceil(seconds / 60)} min`
  return seconds < 360_000 ? `${Math.ceil(seconds / 3600)} h` : `${Math.ceil(seconds / 86_400)} d`
}
