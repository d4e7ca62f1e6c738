import { headers } from 'next/headers.js'
import type { NamesOf } from '../kernel/base/check-options.ts'
import { guardOf } from './guard.ts'
import { isRedirect } from './next-redirect.ts'
import { type GuardOptions, HEADLESS_NAMES, type RequestDenied } from './options.ts'

/** A call of a server action. */
export interface ActionCall<Args extends readonly unknown[]> {
  /** The headers of the request that called it. */
  readonly headers: Headers
  /** The arguments of the call. */
  readonly args: Args
}

/** Options of `limitedAction`. No headers are sent. */
export type ActionOptions<Args extends readonly unknown[], Result> = GuardOptions<ActionCall<Args>> & {
  readonly headers?: never
  /** The result of a denied call. */
  readonly onDenied: (denied: RequestDenied) => Result | Promise<Result>
}

const NAMES: NamesOf<ActionOptions<[], unknown>> = { ...HEADLESS_NAMES, onDenied: true }

/**
 * Limits a server action.
 *
 * For `count`, a call has failed if the action throws. A redirect is not a failure.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * 'use server'
 * import { limitedAction } from 'drizzle-ratelimit/next'
 * import { api } from './app.ts'
 *
 * export const subscribe = limitedAction(
 *   {
 *     ratelimit: api,
 *     key: ({ args: [mail] }) => mail,
 *     onDenied: ({ retryAfter }) => ({ error: `Try again in ${Math.ceil(retryAfter / 1000)} s.` }),
 *   },
 *   async (mail: string) => ({ subscribed: mail }),
 * )
 * ```
 */
export function limitedAction<Args extends readonly unknown[], Done, Refused>(
  options: ActionOptions<Args, Refused>,
  action: (...args: Args) => Promise<Done>,
): (...args: Args) => Promise<Done | Refused> {
  const guard = guardOf<ActionCall<Args>>(options, () => ({ paths: ['/'] }), NAMES)
  return async (...args) => {
    const decided = await guard({ headers: await headers(), args })
    if (!decided.success) return options.onDenied(decided.answer)
    let failed = true
    try {
      const result = await action(...args)
      failed = false
      return result
    } catch (error) {
      failed = !isRedirect(error)
      throw error
    } finally {
      await decided.settle(() => failed)
    }
  }
}
