import { DENIED } from '../kernel/sql/own-prefixes.ts'

// The rows that count the denials of a limiter.

export function deniedPrefix(prefix: string): string {
  return prefix + DENIED
}

/** The row that counts a key's denials in an hour, or with an empty key, which no limiter has, those of all. */
export function denialsKey(hour: string, key = ''): string {
  return `${hour} ${key}`
}

/** An hour as these rows name it: `2026-01-31T09`. */
export function hourOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, '2026-01-31T09'.length)
}
