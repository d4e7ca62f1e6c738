import type { RateLimitTables } from '../../schema/index.ts'
import { checkOptions, checkSwitch, type NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import { SHIPPED } from '../kernel/database/table-name.ts'
import { handleIn, handleOf } from '../kernel/engine/handles.ts'
import { tableOf } from '../kernel/engine/own-layer.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkDatabase, checkTablesGiven, checkUse } from '../kernel/options/checks.ts'
import type { AnyLayer } from '../kernel/options/choices.ts'
import {
  checkClock,
  checkLimiter,
  checkOption,
  checkPrefix,
  checkTakesLimiter,
  readClock,
} from '../kernel/options/validate.ts'
import { type Reading, readingIn } from './read-rows.ts'

/** The limit of a key as it is stored: its customer's plan. With `hashKeys` the argument is the hash. */
export type PlanOf = (key: string) => Limiter | Promise<Limiter>

/** The rows of a limiter, for a process that has no `Ratelimit` of it. */
export interface LimiterRows {
  /** A Drizzle Postgres database, or your transaction. */
  readonly db: Database
  /** The prefix of the limiter. */
  readonly prefix: string
  /** Whether the rows are in the durable table: what the limiter's own `durable` says. */
  readonly durable: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
  /** The layers of the limiter, if one is the store of its rows: `citus()`. Default: none. */
  readonly use?: readonly AnyLayer[]
  /** The time, for tests. Default: the database's clock. */
  readonly clock?: () => Date
  /** The limit by which all rows are read. */
  readonly limiter?: Limiter | undefined
  /** The limit of each key. Not together with `limiter`. */
  readonly limiterOf?: PlanOf | undefined
}

/** The rows of a limiter, and one limit for all of its keys. */
export interface OneLimitRows extends LimiterRows {
  /** The limit by which all rows are read. */
  readonly limiter: Limiter
  /** Not together with `limiter`. */
  readonly limiterOf?: never
}

/** The rows of a limiter, and a limit for each of its keys. */
export interface PlanRows extends LimiterRows {
  /** Not together with `limiterOf`. */
  readonly limiter?: never
  /**
   * The limit of a key: its customer's plan. `usage` asks for up to a thousand keys at once, `closePeriods` for
   * one after the other. `closePeriods` skips keys whose limit has no periods.
   */
  readonly limiterOf: PlanOf
}

const ROWS_NAMES: NamesOf<LimiterRows> = {
  db: true,
  prefix: true,
  durable: true,
  tables: true,
  use: checkUse,
  clock: true,
  limiter: true,
  limiterOf: true,
}

/** Options of a report. */
export interface ReportOptions extends TxOptions {
  /** The most keys to list. Default: `10`. */
  readonly top?: number | undefined
}

export const REPORT_NAMES: NamesOf<ReportOptions> = { ...CALLS.tx, top: checkAboveZero }

/** Checks how many are to be listed or done. */
export function checkAboveZero(value: unknown, name: string): void {
  checkOption(Number.isSafeInteger(value) && Number(value) > 0, `${name} must be a whole number above 0.`)
}

/**
 * The rows of the limiter, or of the description.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_PREFIX`
 */
export function readingOf(of: object, tx?: Database): Reading {
  if (!handleIn(of) && 'db' in Object(of)) return readingOfRows(of as LimiterRows, tx)
  const { checker } = handleOf(of, 'Give a Ratelimit or Credits, or { db, prefix, durable } of the rows.')
  return readingIn(checker, tx)
}

function readingOfRows(rows: LimiterRows, tx: Database | undefined): Reading {
  checkOptions(rows, ROWS_NAMES)
  const { db, prefix, durable, tables = SHIPPED, use = [], clock } = rows
  const { limiter, limiterOf } = rows
  checkDatabase(db)
  checkPrefix(prefix)
  checkClock(clock)
  checkSwitch(durable, 'durable')
  checkTablesGiven(tables)
  checkOption(durable !== undefined, 'durable must be true or false: it says which table has the rows.')
  checkOption(limiter === undefined || limiterOf === undefined, 'Give either limiter or limiterOf.')
  const table = tableOf(durable ? tables.durable : tables.ephemeral, use)
  return { db: tx ?? db, table, prefix, clock: clock && (() => readClock(clock)) }
}

/**
 * The limit by which the rows are read, or what gives that of each key: that of the description, or `limiterOf`
 * of the call, or the limiter's own.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function limitsOf(of: object, planOf: PlanOf | undefined, call: string): Limiter | PlanOf {
  const own = handleIn(of)?.checker.terms.limiter
  checkOption(
    own !== undefined || planOf === undefined,
    'Give limiterOf next to prefix, as a part of the rows.',
  )
  const { limiter, limiterOf }: Partial<LimiterRows> = own ? { limiter: own, limiterOf: planOf } : of
  if (limiterOf === undefined) {
    checkOption(limiter !== undefined, `${call} needs either limiter or limiterOf.`)
    checkLimiter(limiter)
    return limiter
  }
  checkOption(typeof limiterOf === 'function', 'limiterOf must be a function.')
  if (own) checkTakesLimiter(own)
  return limiterOf
}
