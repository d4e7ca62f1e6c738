import type { AnyCredits } from '../any-credits.ts'
import type { Usage } from '../kernel/answers/results.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import type { Duration } from '../kernel/duration.ts'
import { callOn } from '../kernel/engine/handles.ts'
import { own } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { CallOptions } from '../kernel/options/calls.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { blockKey, unblockKey } from './block-key.ts'

/**
 * Blocks a key of a lockout, or of a limiter with `blocks()`, whatever it has used. The block replaces one
 * that is under way.
 *
 * @param duration Milliseconds, or a string like `'1h'`. At most the `max` of a lockout, or a hundred years.
 * @throws RatelimitError `INVALID_OPTION` for another limiter; `INVALID_DURATION`; the errors of
 * `Ratelimit.limit`.
 *
 * @example
 * ```ts
 * import type { Ratelimit } from 'drizzle-ratelimit'
 * import { block, unblock } from 'drizzle-ratelimit/lockout'
 *
 * declare const logins: Ratelimit
 * await block(logins, 'ada@example.com', '1h')
 * await unblock(logins, 'ada@example.com')
 * ```
 */
export async function block(
  ratelimit: Ratelimit | AnyCredits,
  key: string,
  duration: Duration,
  options: CallOptions = {},
): Promise<Usage> {
  checkOptions(options, CALLS.call)
  return await own(blockKey(await callOn(ratelimit, key, options), duration, options.tx))
}

/**
 * Ends a key's block. A lockout also forgets the key's failures and earlier blocks; another limit keeps what
 * was used.
 *
 * @throws RatelimitError `INVALID_OPTION` for a limiter that has no blocks; the errors of
 * `Ratelimit.resetUsedTokens`.
 *
 * @example
 * ```ts
 * import type { Ratelimit } from 'drizzle-ratelimit'
 * import { unblock } from 'drizzle-ratelimit/lockout'
 *
 * declare const logins: Ratelimit
 * await unblock(logins, 'ada@example.com')
 * ```
 */
export async function unblock(
  ratelimit: Ratelimit | AnyCredits,
  key: string,
  options: CallOptions = {},
): Promise<void> {
  checkOptions(options, CALLS.call)
  await unblockKey(await callOn(ratelimit, key, options), options.tx)
}
