import type { Limiter } from './algorithms/algorithm.ts'
import { RatelimitError } from './errors.ts'

// What is refused before any SQL. No message holds the value that it refuses: keys are people's addresses.

/** Prefix and key are one index entry together. Twice as much would still fit, at the cost of a deep and slow index. */
const MOST_BYTES = 1024

const utf8 = new TextEncoder()

/** @throws RatelimitError `INVALID_PREFIX` */
export function checkPrefix(prefix: unknown): asserts prefix is string {
  const fault = faultOf(prefix, '')
  if (fault) throw new RatelimitError('INVALID_PREFIX', `The prefix ${fault}.`)
}

/** @throws RatelimitError `INVALID_KEY` */
export function checkKey(key: unknown, prefix: string): asserts key is string {
  const fault = faultOf(key, prefix)
  if (fault) throw new RatelimitError('INVALID_KEY', `The key ${fault}.`)
}

function faultOf(text: unknown, before: string): string | undefined {
  if (typeof text !== 'string') return 'must be a string'
  if (text === '') return 'must not be empty'
  if (text.includes('\0')) return 'must not contain NUL, which Postgres cannot store'
  // A lone surrogate would be stored as U+FFFD, and so two keys as one.
  if (!text.isWellFormed()) return 'must be well-formed Unicode'
  // No UTF-16 unit takes more than three bytes, which spares nearly all keys the counting.
  const units = before.length + text.length
  if (units * 3 > MOST_BYTES && utf8.encode(before + text).length > MOST_BYTES) {
    return `is too long: prefix and key have ${MOST_BYTES} bytes of UTF-8 together; hash longer keys`
  }
  return undefined
}

/** @throws RatelimitError `INVALID_RATE` */
export function checkRate(rate: unknown, { algorithm }: Limiter): asserts rate is number {
  const valid = algorithm.whole
    ? Number.isSafeInteger(rate)
    : Number.isFinite(rate) && Math.abs(Number(rate)) <= Number.MAX_SAFE_INTEGER
  if (!valid) {
    throw new RatelimitError(
      'INVALID_RATE',
      algorithm.whole
        ? 'The rate must be a whole number for windows; token buckets take fractions.'
        : 'The rate must be a finite number.',
    )
  }
}

/** @throws RatelimitError `INVALID_OPTION` */
export function checkLimiter(limiter: Limiter): void {
  checkOption(limiter?.algorithm !== undefined, 'limiter must be made by Ratelimit.tokenBucket or its like.')
}

/** @throws RatelimitError `INVALID_OPTION` */
export function checkOption(valid: boolean, what: string): asserts valid {
  if (!valid) throw new RatelimitError('INVALID_OPTION', what)
}

/**
 * The Unix milliseconds of an injected clock.
 *
 * @throws RatelimitError `INVALID_CLOCK`
 */
export function readClock(clock: () => Date): number {
  const time = clock()
  const ms = time instanceof Date ? time.getTime() : Number.NaN
  if (Number.isNaN(ms)) throw new RatelimitError('INVALID_CLOCK', 'The clock must return a valid Date.')
  return ms
}
