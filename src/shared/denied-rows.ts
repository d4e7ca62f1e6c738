import { DENIED } from '../kernel/sql/own-prefixes.ts'

// The rows that count the denials of a limiter: in each hour, and in each minute of the last hour.

export function deniedPrefix(prefix: string): string {
  return prefix + DENIED
}

/** A length of time whose denials have rows. */
export interface Span {
  readonly ms: number
  /** How long a row is kept after its first denial. */
  readonly keptMs: number
  /** How many characters name such a time. */
  readonly named: number
  /** The character after an hour in the keys of these rows. It tells hours from minutes. */
  readonly mark: ' ' | ':'
}

/** Hours are named like `2026-01-31T09`. */
export const HOUR: Span = { ms: 3_600_000, keptMs: 7 * 86_400_000, named: 13, mark: ' ' }

/** Minutes are named like `2026-01-31T09:05`. The one that was an hour ago is still there. */
export const MINUTE: Span = { ms: 60_000, keptMs: 62 * 60_000, named: 16, mark: ':' }

/** The name of the hour or minute that has this time. */
export function spanName(span: Span, ms: number): string {
  return new Date(ms).toISOString().slice(0, span.named)
}

/** The row that counts a key's denials in a time, or with an empty key, which no limiter has, those of all. */
export function denialsKey(time: string, key = ''): string {
  return `${time} ${key}`
}
