import type { NamedReserveOptions, PlainReserveOptions } from '../estimates/options.ts'
import { checkOptions, checkSwitch, type NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import type { Duration } from '../kernel/duration.ts'
import { RatelimitError } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { BlockOptions, LimitOptions, OnceOptions, TxOptions } from '../kernel/options/calls.ts'
import type {
  Coalescing,
  Degrading,
  Layered,
  NoConnections,
  NoDegrading,
  QuotaTable,
  Reporting,
  Sweeping,
} from '../kernel/options/choices.ts'
import type { CommonConfig } from '../kernel/options/config.ts'

/** The options that mean something for all credits. */
type EitherCredits<D> = Omit<CommonConfig<D>, 'limiter' | 'onOtherPlan'> &
  Layered<D> &
  Pick<Sweeping, 'cleanupProbability'> &
  QuotaTable &
  Reporting &
  (Coalescing | NoConnections) &
  (Degrading | NoDegrading)

/** Options of the constructor of `Credits` without `dated`. */
type UndatedConfig<D> = EitherCredits<D> &
  Pick<CommonConfig, 'onOtherPlan'> & {
    /** Each key has one balance. */
    readonly dated?: false
    readonly keep?: never
  }

/** Options of the constructor of `Credits` with `dated: true`. */
type DatedConfig<D> = EitherCredits<D> & {
  /**
   * Whether credits are in grants with an id, an end and a priority. Each grant is then a row. Default:
   * `false`, one balance for each key, which is cheaper.
   */
  readonly dated: true
  /**
   * How long a grant's row is kept after its end. While the row exists, the grant's id cannot be used again,
   * and `grants` lists what has expired. Default: `'90d'`.
   */
  readonly keep?: Duration
  readonly onOtherPlan?: never
}

/** Options of the constructor of `Credits`. */
export type CreditsConfig<Dated extends boolean = boolean, D = Database> = (
  | DatedConfig<D>
  | UndatedConfig<D>
) & { readonly dated?: Dated } & (Dated extends true ? { readonly dated: true } : unknown)

/** Options of `grant` of undated credits. */
export interface GrantOptions extends TxOptions, OnceOptions {}

/** Options of `grant` of dated credits. */
export interface DatedGrantOptions extends TxOptions {
  /**
   * The name of the grant, such as a payment's id. A key's grants have different ids: the same id again grants
   * nothing. Key, id and prefix may have about 1,000 bytes together, of which the id counts twice.
   */
  readonly id: string
  /**
   * When the grant ends, in the years 2000 to 9999, or how long it lasts. From then on it has nothing left.
   * Default: never.
   */
  readonly expires?: Date | Duration | undefined
  /** Which grant is used first: a whole number from 0, the first, to 100. Default: `50`. */
  readonly priority?: number | undefined
}

/** Options of a charge of credits. They have no plans, so they take no `limiter`. */
export type CreditLimitOptions = Omit<LimitOptions, 'limiter'>

/** Options of `blockUntilReady` of credits. */
export type CreditBlockOptions = Omit<BlockOptions, 'limiter'>

/** Options of an estimate of credits. */
export type CreditReserveOptions = Omit<PlainReserveOptions, 'limiter'> | Omit<NamedReserveOptions, 'limiter'>

// The options of each call, with their checks, as in `call-table.ts`. An option that has true here is checked
// by the call itself; those of the constructor are checked by the table of all limiters.

const OF_BOTH = {
  ...{ db: true, prefix: true, dated: checkSwitch, durable: true, synchronousCommit: true, clock: true },
  ...{ tables: true, autoMigrate: true, waitUntil: true, preparedStatements: true, dryRun: true },
  ...{ timeout: true, hashKeys: true, cleanupProbability: true, thresholds: true, coalesce: true },
  ...{ connections: true, onError: true, onDegraded: true, use: true, keep: true },
} as const satisfies NamesOf<DatedConfig<Database>>
const UNDATED = {
  ...OF_BOTH,
  ...{ keep: needsDated, onOtherPlan: true },
} as const satisfies NamesOf<DatedConfig<Database> | UndatedConfig<Database>>

/** @throws RatelimitError `INVALID_OPTION` for an unknown option */
export function checkNames(config: object): void {
  checkOptions(config, Object(config).dated === true ? OF_BOTH : UNDATED)
}

/** @throws RatelimitError `INVALID_OPTION` */
export function needsDated(_: unknown, name: string): never {
  throw new RatelimitError('INVALID_OPTION', `${name} needs dated: true.`)
}

export const limit: NamesOf<CreditLimitOptions> = { ...CALLS.charge, force: checkSwitch }
export const grant: NamesOf<GrantOptions> = { ...CALLS.tx, ...CALLS.once }
export const datedGrant: NamesOf<DatedGrantOptions> = {
  ...CALLS.tx,
  ...{ id: true, expires: true, priority: true },
}
export const blockUntilReady: NamesOf<CreditBlockOptions> = {
  ...CALLS.once,
  ...{ rate: true, atLeast: true, signal: true },
}
