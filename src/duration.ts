import { RatelimitError } from './errors.ts'

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

type Unit = keyof typeof UNIT_MS

/**
 * A length of time: `'500ms'`, `'10s'`, `'1m'`, `'1h'`, `'1d'` (a space is fine), or a number of
 * milliseconds.
 */
export type Duration = number | `${number}${Unit}` | `${number} ${Unit}`

/** A hundred years. A longer time may not fit a timestamp, and is probably a mistake. */
export const MAX_MS: number = 36_525 * UNIT_MS.d

const WRITTEN = /^(?<amount>\d+(\.\d+)?) ?(?<unit>ms|s|m|h|d)$/

/**
 * Reads a duration as whole milliseconds.
 *
 * @throws RatelimitError `INVALID_DURATION` if it is not one, is not a whole number of milliseconds, or lies
 * outside `minMs` to a hundred years.
 */
export function parseDuration(duration: Duration, what: string, minMs = 1): number {
  const durationMs = typeof duration === 'string' ? readMs(duration) : duration
  const wholeMs = Math.round(Number(durationMs))
  // '1.1h' is 3960000.0000000005 ms.
  const isWhole = typeof durationMs === 'number' && Math.abs(durationMs - wholeMs) < 1e-6
  if (!isWhole || wholeMs < minMs || wholeMs > MAX_MS) {
    throw new RatelimitError(
      'INVALID_DURATION',
      `${what} must be whole milliseconds from ${minMs} to a hundred years: a number, or a string like '10s' or '1d'.`,
    )
  }
  return wholeMs
}

function readMs(written: string): number {
  const { amount, unit } = WRITTEN.exec(written)?.groups ?? {}
  return Number(amount) * UNIT_MS[unit as Unit]
}
