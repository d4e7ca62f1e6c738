import { HANDLE } from '../base/handle.ts'
import { callOf, checkOption, checkTakesLimiter, type OptionsOfCall } from '../options/validate.ts'
import type { Checker, LimiterCall } from './checker.ts'
import type { FundedCall } from './funds.ts'

/** The parts of a `Ratelimit` or of `Credits` that functions of the package use. */
export interface Handle {
  readonly checker: Checker
  /** Makes a call that funds pay, on a stored key. Undefined if each call of the limiter has one row. */
  readonly funded: ((stored: string, asked: FundedOptions) => Promise<FundedCall>) | undefined
}

/** What a call asks of funds. */
export type FundedOptions = Pick<OptionsOfCall, 'rate' | 'force' | 'atLeast'>

/** Lets functions reach the parts. */
export function expose(limiter: object, handle: Handle): void {
  Object.defineProperty(limiter, HANDLE, { value: handle })
}

/**
 * The parts of a `Ratelimit` or of `Credits`.
 *
 * @throws RatelimitError `INVALID_OPTION` with the message if it is none.
 */
export function handleOf(limiter: unknown, message: string): Handle {
  const handle = handleIn(limiter)
  checkOption(handle !== undefined, message)
  return handle
}

/** The parts of a `Ratelimit` or of `Credits`. Undefined if it is none. */
export function handleIn(limiter: unknown): Handle | undefined {
  return Object(limiter)[HANDLE]
}

/**
 * The call on a key. A promise only if keys are hashed, or if funds pay: an `await` takes time even without a
 * promise.
 *
 * @throws RatelimitError `INVALID_KEY`, `INVALID_OPTION`, `INVALID_RATE`
 */
export function calledBy(
  handle: Handle,
  key: string,
  options: OptionsOfCall,
): LimiterCall | Promise<LimiterCall> {
  const { hash } = handle.checker.terms
  if (!hash) return calledOn(handle, key, options)
  return hash(key).then((stored) => calledOn(handle, stored, options))
}

/**
 * The call of a function on one key of a limiter.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_KEY`, `INVALID_RATE`
 */
export async function callOn(ratelimit: object, key: string, options: OptionsOfCall): Promise<LimiterCall> {
  const handle = handleOf(ratelimit, 'ratelimit must be a limiter of this version of the package.')
  return calledBy(handle, key, options)
}

/** The call on a key as it is stored. */
export function calledOn(
  { checker, funded }: Handle,
  stored: string,
  options: OptionsOfCall,
): LimiterCall | Promise<LimiterCall> {
  const { terms, rows } = checker
  if (!funded) return { checker, call: callOf(rows.namespace.prefix, terms.limiter, stored, options) }
  if (options.limiter !== undefined) checkTakesLimiter(terms.limiter)
  return funded(stored, options)
}
