import { kindOf } from '../base/kind-of.ts'
import { hmacWith, sha256 } from '../database/digest.ts'
import { RatelimitError } from '../errors.ts'
import type { Limiter } from '../limits/algorithm.ts'
import { BLOCKED, DENIED } from '../sql/own-prefixes.ts'
import { type Call, type Purpose, requestFor } from '../store/call.ts'
import type { LimitOptions, RefundOptions } from './calls.ts'

// Checks before any SQL. Each throws a `RatelimitError` with its own code or `INVALID_OPTION`. No
// message has the refused value, because keys may be people's addresses.

/** Prefix and key form one index entry. Postgres allows twice as much, but the index would be deep and slow. */
const MAX_BYTES = 1024

const utf8 = new TextEncoder()

/** Postgres knows no time before the year -4,712. */
const [MIN_TIME_MS, MAX_TIME_MS] = [Date.UTC(-4000), Date.UTC(10_000)] as const

export function checkClock(clock: unknown): void {
  checkOption(clock === undefined || typeof clock === 'function', 'clock must be a function.')
}

export type OptionsOfCall = LimitOptions & Partial<Pick<RefundOptions, 'start'>>

/** The call with these options. Its limiter is the one in the options, or else `own`. */
export function callOf(prefix: string, own: Limiter, key: string, options: OptionsOfCall): Call {
  checkLimiter(own)
  const { rate = 1, limiter = own, force = false, atLeast, start } = options
  checkKey(key, prefix)
  if (limiter !== own) {
    checkLimiter(limiter)
    checkTakesLimiter(own)
  }
  checkRate(rate, limiter, prefix)
  if (atLeast !== undefined) checkAtLeast(atLeast, rate, limiter, prefix, force)
  if (start !== undefined) checkStart(start, rate)
  // A window has paid, and this limit has no windows.
  const given = start !== undefined && limiter.algorithm.kind !== 'window' ? 0 : rate
  const purpose = force && rate > 0 ? 'adjust' : purposeOf(given)
  return requestFor(key, limiter, purpose, given, start ?? null, undefined, atLeast ?? null)
}

function checkStart(start: unknown, rate: number): void {
  checkOption(Number.isFinite(start), 'start must be the start in an answer, in Unix milliseconds.')
  checkOption(rate < 0, 'start needs a negative rate: it names the window that gets the refund.')
}

/** Far above the tolerance of buckets, so that something is taken. */
const MIN_AT_LEAST = 1e-6

function checkAtLeast(
  atLeast: unknown,
  rate: number,
  limiter: Limiter,
  prefix: string,
  force: boolean,
): void {
  checkRate(atLeast, limiter, prefix, 'atLeast')
  if (atLeast < MIN_AT_LEAST || atLeast > rate) {
    throw new RatelimitError('INVALID_RATE', 'atLeast must be a number from 0.000001 to the rate.')
  }
  checkOption(!force, 'atLeast cannot be combined with force. Force takes the whole rate at once.')
}

/** The purpose of a call with this rate, unless it is forced. */
export function purposeOf(rate: number): Purpose {
  if (rate > 0) return 'take'
  return rate < 0 ? 'adjust' : 'look'
}

export function checkPrefix(prefix: unknown): asserts prefix is string {
  const fault = faultOf(prefix, '') ?? reservedFaultOf(String(prefix))
  if (fault) throw new RatelimitError('INVALID_PREFIX', `The prefix ${fault}.`)
}

function reservedFaultOf(prefix: string): string | undefined {
  const end = [DENIED, BLOCKED].find((each) => prefix.endsWith(each))
  return end ? `must not end with "${end}", where the package keeps rows of its own` : undefined
}

/**
 * A function that hashes keys for storage: the SHA-256 in hexadecimal, or with a secret the HMAC-SHA-256. It
 * refuses an invalid key with `INVALID_KEY`.
 */
export function hashOf(secret: string | true, prefix: string): (key: unknown) => Promise<string> {
  const digest = secret === true ? sha256 : hmacWith(secret)
  return async (key) => {
    refuseKey(textFaultOf(key), prefix)
    return digest(String(key))
  }
}

export function isStorable(key: string, prefix: string): boolean {
  return faultOf(key, prefix) === undefined
}

export function checkKey(key: unknown, prefix: string): asserts key is string {
  refuseKey(faultOf(key, prefix), prefix)
}

function refuseKey(fault: string | undefined, prefix: string): void {
  if (fault) throw new RatelimitError('INVALID_KEY', `The key of ${JSON.stringify(prefix)} ${fault}.`)
}

function textFaultOf(text: unknown): string | undefined {
  if (typeof text !== 'string') return `must be a string, and not ${kindOf(text)}`
  if (text === '') return 'must not be empty'
  if (text.includes('\0')) return 'must not contain NUL, which Postgres cannot store'
  // A lone surrogate would be stored as U+FFFD, so that two keys could become one.
  if (!text.isWellFormed()) return 'must be well-formed Unicode'
  return undefined
}

function faultOf(text: unknown, before: string): string | undefined {
  const fault = textFaultOf(text)
  if (fault || typeof text !== 'string') return fault
  // A UTF-16 unit takes at most three bytes, so most keys need no counting.
  const units = before.length + text.length
  if (units * 3 > MAX_BYTES && utf8.encode(before + text).length > MAX_BYTES) {
    return `is too long: prefix and key may have ${MAX_BYTES} bytes of UTF-8 together; hash longer keys`
  }
  return undefined
}

/** Checks a rate, or another number in place of one. */
export function checkRate(
  rate: unknown,
  { algorithm }: Limiter,
  prefix: string,
  what = 'The rate',
): asserts rate is number {
  const valid = algorithm.integersOnly
    ? Number.isSafeInteger(rate)
    : Number.isFinite(rate) && Math.abs(Number(rate)) <= Number.MAX_SAFE_INTEGER
  if (valid) return
  const needed = algorithm.integersOnly ? 'a whole number' : 'a number'
  throw new RatelimitError(
    'INVALID_RATE',
    `${what} of ${JSON.stringify(prefix)} must be ${needed} of at most 2^53 - 1, and not ${kindOf(rate)}.`,
  )
}

export function checkLimiter(limiter: Limiter): void {
  checkOption(
    typeof limiter?.algorithm?.numbers?.available === 'function',
    'limiter must come from a function of this package, such as Ratelimit.tokenBucket.',
  )
}

/**
 * Refuses another limit for a call on credits: it would not take what was paid for. One with rows of its own
 * would also replace the state of the row, and the credits would be lost.
 */
export function checkTakesLimiter(own: Limiter): void {
  checkOption(!isPrepaid(own), 'Credits take no limiter: they have no plans.')
}

/** Whether it is prepaid: it has only what was added, and nothing refills. */
export function isPrepaid({ algorithm }: Limiter): boolean {
  return algorithm.numbers.add !== undefined
}

export function checkOption(valid: boolean, message: string): asserts valid {
  if (!valid) throw new RatelimitError('INVALID_OPTION', message)
}

/** The Unix milliseconds of an injected clock. */
export function readClock(clock: () => Date): number {
  const time = timeOn(clock)
  const ms = time instanceof Date ? time.getTime() : Number.NaN
  if (!(ms > MIN_TIME_MS && ms < MAX_TIME_MS))
    throw new RatelimitError('INVALID_CLOCK', 'The clock must return a valid Date before the year 10,000.')
  return ms
}

function timeOn(clock: () => unknown): unknown {
  try {
    return clock()
  } catch (cause) {
    throw new RatelimitError('INVALID_CLOCK', 'The clock threw an error: see the cause.', { cause })
  }
}
