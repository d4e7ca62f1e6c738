import type { SQL } from 'drizzle-orm'
import type { AnyCredits } from '../any-credits.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { handleOf } from '../kernel/engine/handles.ts'
import { storeIn } from '../kernel/engine/own-layer.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { checkUse } from '../kernel/options/checks.ts'
import type { AnyLayer } from '../kernel/options/choices.ts'
import { checkClock, checkLimiter, checkOption, readClock } from '../kernel/options/validate.ts'
import type { RowColumns } from '../kernel/sql/columns.ts'
import { type RowNumber, rowNumber } from './row.ts'

export type { RowColumns }

/** Options of `usedOf`, `remainingOf` and `resetOf`. */
export interface RowOptions {
  /** The time, for tests. Default: the clock of the credits, or the database's, read for each row. */
  readonly clock?: () => Date
  /**
   * The layers of the limiter, if one is the store of its rows: `citus()`. Default: those of the credits, or
   * none.
   */
  readonly use?: readonly AnyLayer[]
}

const ROW_NAMES: NamesOf<RowOptions> = { clock: true, use: checkUse }

/**
 * The usage of a row under the limit, or of undated credits, as an expression for a Drizzle query of your own.
 *
 * Join by prefix and key. After a left join, a key without a row counts as new. Build the query again each time
 * you run it, because it contains the calendar's present period. If the database's clock differs from this
 * machine's by more than a period of the calendar, the expression is null.
 *
 * @param table The table, or an alias of it.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_CLOCK`
 *
 * @example
 * ```ts
 * import { and, desc, eq } from 'drizzle-orm'
 * import { rateLimitDurable } from 'drizzle-ratelimit'
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { usedOf } from 'drizzle-ratelimit/reports'
 * import { db, orgs } from './app.ts'
 *
 * const used = usedOf(rateLimitDurable, calendarWindow(1000, 'month'))
 * const isRow = and(eq(rateLimitDurable.prefix, 'reports'), eq(rateLimitDurable.key, orgs.id))
 * await db.select({ org: orgs.id, used }).from(orgs).leftJoin(rateLimitDurable, isRow).orderBy(desc(used))
 * ```
 */
export function usedOf(
  table: RowColumns,
  limiter: Limiter | AnyCredits,
  options: RowOptions = {},
): SQL<number> {
  return numberOf(table, limiter, options, 'used')
}

/**
 * The whole units that a row has left under the limit, as an expression; see {@link usedOf}.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_CLOCK`
 */
export function remainingOf(
  table: RowColumns,
  limiter: Limiter | AnyCredits,
  options: RowOptions = {},
): SQL<number> {
  return numberOf(table, limiter, options, 'remaining')
}

/**
 * The Unix milliseconds at which the limit of a row is full again if nothing more is used, as an expression;
 * see {@link usedOf}.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_CLOCK`
 */
export function resetOf(
  table: RowColumns,
  limiter: Limiter | AnyCredits,
  options: RowOptions = {},
): SQL<number> {
  return numberOf(table, limiter, options, 'reset')
}

function numberOf(
  table: RowColumns,
  of: Limiter | AnyCredits,
  options: RowOptions,
  which: RowNumber,
): SQL<number> {
  checkOptions(options, ROW_NAMES)
  const { clock, use } = options
  checkClock(clock)
  const credits = isCredits(of) ? oneRowOf(of) : undefined
  const limiter = credits?.terms.limiter ?? (of as Limiter)
  checkLimiter(limiter)
  checkOption(limiter.stored, 'An unlimited plan has no rows to read.')
  checkOption(
    limiter.algorithm.columns.every((column) => typeof Object(table)[column]?.getSQL === 'function'),
    'The table must have the columns of a table made by rateLimitTables.',
  )
  const at = clock ? readClock(clock) : (credits?.rows.namespace.clock?.() ?? null)
  const isOpen = use ? storeIn(use) !== undefined : credits?.rows.table.store.isShown === true
  return rowNumber(table, limiter, at, which, isOpen).mapWith(Number)
}

function isCredits(of: Limiter | AnyCredits): of is AnyCredits {
  return 'dated' in Object(of)
}

/** The checker of credits of which a key has one row. */
function oneRowOf(credits: AnyCredits): Checker {
  const { checker, funded } = handleOf(credits, 'limiter must be a limit, or Credits of this version.')
  checkOption(!funded, 'A key of dated credits has a row for each grant: see grants.')
  return checker
}
