import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { type Exclusion, hasLayer, ownLayer } from '../kernel/engine/own-layer.ts'
import type { Layer } from '../kernel/options/layer.ts'
import { checkOption, isPrepaid } from '../kernel/options/validate.ts'
import { Prefetcher } from './prefetcher.ts'

/** Options of {@link prefetch}. */
export interface PrefetchOptions {
  /** The most units that a process takes in advance for a key. A whole number. */
  readonly tokens: number
  /** How long a process may use the units. After that it gives back what is left. At most an hour. */
  readonly for: Duration
  /** How many keys are remembered. The least recently checked one is dropped first. Default: `10_000`. */
  readonly maxKeys?: number | undefined
  /**
   * `tokens` again, where units are billed: with `durable: true`, as a `Quota` has it. A process that crashes
   * leaves up to so many units of each busy key charged, though nobody has used them.
   */
  readonly mayLose?: number | undefined
}

/** What a process that ends does not give back is lost for others. */
const MAX_FOR_MS = 3_600_000

const NAMES: NamesOf<PrefetchOptions> = { tokens: true, for: true, maxKeys: true, mayLose: true }

const PAID = 'A process that crashes would lose units that were paid for.'
const REPORTED = 'Reports would include units that were not used yet.'

const UNSAID: Exclusion = [
  'durable: true without mayLose',
  ({ durable }) => durable,
  'A process that crashes leaves units charged. Repeat the number of tokens as mayLose if it may.',
]

const EXCLUDES: readonly Exclusion[] = [
  ['credits', ({ limiter }) => isPrepaid(limiter), PAID],
  ['keepEnded', ({ keepEnded }) => keepEnded, REPORTED],
  ['thresholds', ({ thresholds }) => thresholds.length > 0, REPORTED],
  [
    'a lockout',
    ({ limiter }) => limiter.algorithm.seesEachCall,
    'Units in advance would be failures that nobody made.',
  ],
  [
    'coalesce: false, as in Workers',
    ({ coalesce }) => !coalesce,
    'Calls of several requests share the units.',
  ],
  ['ledger', (settings) => hasLayer(settings, 'ledger'), 'A call that memory answers has no transaction.'],
]

/**
 * Answers most calls of busy keys from memory. The second call of a key within `for` takes up to `tokens` more
 * than it needs, and the calls that follow use them. The unused ones are given back.
 *
 * Fixed and calendar windows never exceed their limit. Other limits grant in any time at most what they grant
 * without it in a time that is longer by `for`.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { prefetch } from 'drizzle-ratelimit/prefetch'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.fixedWindow(10_000, '1m')
 * export const api = new Ratelimit({ db, limiter, prefix: 'api', use: [prefetch({ tokens: 50, for: '1s' })] })
 * ```
 */
export function prefetch(options: PrefetchOptions): Layer {
  checkOptions(options, NAMES)
  const { tokens, for: time, maxKeys = 10_000, mayLose } = options
  const forMs = parseDuration(time, 'for')
  const areWhole = [tokens, maxKeys].every((units) => Number.isSafeInteger(units) && units > 0)
  checkOption(
    forMs <= MAX_FOR_MS && areWhole,
    'tokens and maxKeys of prefetch must be whole numbers above 0, and for at most an hour.',
  )
  checkOption(mayLose === undefined || mayLose === tokens, 'mayLose of prefetch must be equal to tokens.')
  const layer: Layer = { name: 'prefetch' }
  return ownLayer(layer, {
    excludes: mayLose === undefined ? [UNSAID, ...EXCLUDES] : EXCLUDES,
    inAdvance: (supplier) => new Prefetcher({ tokens, forMs, maxKeys }, supplier),
  })
}
