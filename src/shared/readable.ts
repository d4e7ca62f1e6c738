/** A count for people. */
export function inDigits(count: number): string {
  if (!Number.isFinite(count)) return '∞'
  return count.toLocaleString('en-US', { maximumFractionDigits: 1 })
}

/** A count of something: `1 denial`, `2 denials`. */
export function counted(count: number, noun: string): string {
  return `${inDigits(count)} ${noun}${count === 1 ? '' : 's'}`
}

/** How long it is from `now` until a time, in one unit. */
export function inTime(time: number, now: number): string {
  if (!Number.isFinite(time)) return 'never'
  const seconds = Math.max(0, Math.ceil((time - now) / 1000))
  if (seconds < 100) return `${seconds} s`
  if (seconds < 6000) return `${Math.ceil(seconds / 60)} min`
  return seconds < 360_000 ? `${Math.ceil(seconds / 3600)} h` : `${Math.ceil(seconds / 86_400)} d`
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
] as const

/** A number of a rule. Small ones keep three digits, so that none of them looks like 0. */
export function inRule(count: number): string {
  const digits = { maximumFractionDigits: 1, maximumSignificantDigits: 3 }
  return count.toLocaleString('en-US', { ...digits, roundingPriority: 'morePrecision' })
}

/** A length of time, in the largest unit of which it has a whole number. */
export function inLength(lengthMs: number): string {
  const [unit, ms] = UNITS.find(([, each]) => lengthMs % each === 0) ?? ['ms', 1]
  return `${inRule(lengthMs / ms)} ${unit}`
}

/**
 * Replaces the characters that a terminal acts on, such as escapes, line ends and marks of direction. Names in
 * a database may contain them.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\ufffd')
}
