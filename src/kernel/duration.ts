import { parse } from '@lukeed/ms'
import { RatelimitError } from './errors.ts'

type Unit = 'ms' | 's' | 'm' | 'h' | 'd'

/** A length of time: `'500ms'`, `'10s'`, `'1m'`, `'1h'`, `'1 d'`, or a number of milliseconds. */
export type Duration = number | `${number}${Unit}` | `${number} ${Unit}`

/** A hundred years. A longer time may not fit into a timestamp, and is probably a mistake. */
export const MAX_MS: number = 36_525 * 86_400_000

const DURATION = /^\d+(\.\d+)? ?(ms|s|m|h|d)$/

/**
 * Reads a duration as whole milliseconds.
 *
 * @param name The name of the duration in the error message.
 * @throws RatelimitError `INVALID_DURATION` if it is not a duration in whole milliseconds from `minMs` to a
 * hundred years.
 */
export function parseDuration(duration: Duration, name: string, minMs = 1): number {
  // The library returns undefined for a length of 0.
  const read = typeof duration === 'string' && DURATION.test(duration) ? (parse(duration) ?? 0) : duration
  const durationMs = typeof read === 'number' ? read : Number.NaN
  const wholeMs = Math.round(durationMs)
  // '1.1h' is 3960000.0000000005 ms.
  const isWhole = Math.abs(durationMs - wholeMs) < 1e-6
  if (!isWhole || wholeMs < minMs || wholeMs > MAX_MS) {
    throw new RatelimitError(
      'INVALID_DURATION',
      `${name} must be whole milliseconds from ${minMs} to a hundred years: 10000, or '10s' with the unit ms, s, m, h or d.`,
    )
  }
  return wholeMs
}
