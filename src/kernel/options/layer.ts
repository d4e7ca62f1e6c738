import type { DecisionMessage, ErrorMessage } from '../diagnostics.ts'

/**
 * What a limiter has in `use`: it gets to know how the limiter's calls were answered. One of your own can be in
 * the `use` of several limiters.
 *
 * No call waits for what these functions return, and what they throw changes no answer.
 *
 * @example
 * ```ts
 * import { type Layer, Ratelimit } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * const printDenials: Layer = {
 *   name: 'printed denials',
 *   decided: ({ success, prefix, key }) => success || console.log(`${prefix} has denied ${key}`),
 * }
 * new Ratelimit({ db, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'logins', use: [printDenials] })
 * ```
 */
export interface Layer {
  /** What it is. A limiter has one layer of a name. */
  readonly name: string
  /** Gets the decision on a call, before its caller does. */
  decided?(decision: DecisionMessage): unknown
  /** Gets the error of a call that failed, or that `onError` has answered. */
  failed?(failure: ErrorMessage): unknown
  /** Ends its work. `close` of the limiter waits for the returned promise, as long as it may. */
  close?(): unknown
  /** Only a ledger has it. */
  readonly write?: never
}
