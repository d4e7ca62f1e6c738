import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { ownLayer } from '../kernel/engine/own-layer.ts'
import { upTo } from '../kernel/options/checks.ts'
import type { Layer } from '../kernel/options/layer.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { DenialCounts } from './denial-counts.ts'

/** Options of {@link countDenials}. */
export interface DenialOptions {
  /**
   * How often the counts are written: at most an hour. A process that ends loses the counts since the last
   * write. Default: `'10s'`.
   */
  readonly every?: Duration | undefined
  /**
   * How many keys are counted at a time, from 1 to 500. If more keys are denied between two writes, the count
   * of a key may be too low: by at most a share of all denials, `1 / (top + 1)`. Default: `100`.
   */
  readonly top?: number | undefined
}

/** Counts belong to the hour in which they are written. */
const MAX_EVERY_MS = 3_600_000

/** Each write adds to this many rows, in one statement. */
const MAX_TOP = 500

const NAMES: NamesOf<DenialOptions> = { every: true, top: upTo(MAX_TOP) }

/**
 * Counts the denials of each key, for `denied` of `drizzle-ratelimit/reports`. Counts are kept in memory and
 * added to rows in the background, never in your transaction. Rows of hours are kept for a week, and rows of
 * minutes for an hour.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { countDenials } from 'drizzle-ratelimit/denials'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.fixedWindow(5, '1m')
 * export const logins = new Ratelimit({ db, limiter, prefix: 'logins', use: [countDenials({ top: 20 })] })
 * ```
 */
export function countDenials(options: DenialOptions = {}): Layer {
  checkOptions(options, NAMES)
  const { every = '10s', top = 100 } = options
  const everyMs = parseDuration(every, 'every')
  checkOption(everyMs <= MAX_EVERY_MS, 'every must be at most an hour.')
  const layer: Layer = { name: 'denials' }
  return ownLayer(layer, {
    begin: (parts) => {
      checkOption(
        !parts.rows.connection.isTransaction,
        'countDenials needs a db that is not a transaction: denials are written after it. Give calls the tx.',
      )
      return [new DenialCounts(parts, everyMs, top)]
    },
  })
}
