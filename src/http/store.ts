import { checkOptions } from '../kernel/base/check-options.ts'
import { warnOnce } from '../kernel/base/warn.ts'
import { sha256 } from '../kernel/database/digest.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import type { RatelimitConfig } from '../kernel/options/config.ts'
import { configNames } from '../kernel/options/settings.ts'
import { isStorable } from '../kernel/options/validate.ts'
import { Ratelimit } from '../ratelimit.ts'

type WithoutLimiter<Config> = Config extends unknown ? Omit<Config, 'limiter'> : never

/** The options of a `Ratelimit`, without `limiter`, because the framework's own rate limiter has the limits. */
export type StoreConfig = WithoutLimiter<RatelimitConfig>

/**
 * The `Ratelimit` of a store.
 *
 * @throws RatelimitError the errors of the constructor of `Ratelimit`; `INVALID_OPTION` for a `limiter`, which
 * would be ignored.
 */
export function ratelimitOf(config: StoreConfig, limiter: Limiter): Ratelimit {
  const { limiter: _, ...names } = configNames()
  checkOptions(config, names)
  return new Ratelimit({ ...config, limiter })
}

/** A window that counts and never denies. */
export function counting(windowMs: number): Limiter {
  return Ratelimit.fixedWindow(Number.MAX_SAFE_INTEGER, windowMs)
}

/**
 * The key, or its hash if the key is not valid for a row. An error would be dangerous, because clients choose
 * keys, and some frameworks can let requests pass if the store fails.
 */
export async function storable(key: string, prefix: string): Promise<string> {
  return isStorable(key, prefix) ? key : sha256(key)
}

/** Warns of an error in place of throwing it, for hosts that would not catch it: it would end the process. */
export function warnOfFailure(error: unknown, prefix: string): void {
  const what = error instanceof RatelimitError ? `${error.code}: ${error.message}` : 'an unexpected error.'
  warnOnce(
    'STORE_FAILED',
    `The store with the prefix "${prefix}" had ${what} See docs/errors.md#store_failed.`,
    `${prefix} ${error instanceof RatelimitError ? error.code : ''}`,
  )
}
