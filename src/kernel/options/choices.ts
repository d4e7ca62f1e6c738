import type { Database, PostgresOf } from '../database/database.ts'
import type { Duration } from '../duration.ts'
import type { RatelimitError } from '../errors.ts'
import type { Entry } from '../store/entry.ts'
import type { Layer } from './layer.ts'

/** A share of the limit, or a number of units that are used or left. */
export type Threshold =
  | number
  | {
      /** Units, above 0. */
      readonly used: number
      readonly left?: never
    }
  | {
      /** Units; 0 when all are used. */
      readonly left: number
      readonly used?: never
    }

export interface NoConnections {
  /**
   * Whether calls that arrive together share a statement. `false` gives each call its own, for runtimes where
   * the work of one request cannot resolve a promise of another. Default: `true`, but `false` in Workers.
   */
  readonly coalesce?: boolean
  readonly connections?: never
}

export interface Coalescing {
  /** Calls that arrive together share a statement. Default: `true`, but `false` in Workers. */
  readonly coalesce?: true
  /**
   * How many statements of this limiter may be under way outside transactions, each on a connection of the
   * pool. In addition, up to four may wait for rows that others hold, and one may sweep. It cannot be
   * combined with `coalesce: false`, where each call takes a connection. Default: `4`.
   */
  readonly connections?: number
}

export interface Sweeping {
  /**
   * The share of calls that start a sweep of their prefix's expired rows, between 0 (none) and 1 (each). One
   * sweep runs at a time and deletes 100 rows at most. After a sweep that left no expired rows, none runs for
   * 50 ms. Default: `0.1`.
   */
  readonly cleanupProbability?: number
  readonly keepEnded?: false
  readonly grace?: never
}

/** The options that only a `Quota` has. */
export interface NoPeriods extends Pick<Sweeping, 'cleanupProbability'> {
  readonly keepEnded?: never
  readonly grace?: never
  readonly thresholds?: never
}

export interface Reporting {
  /**
   * Shares of the limit, below 10, and amounts: `[0.8, { used: 10_000 }, { left: 100 }]`. `crossed` in the
   * answer of a call has the thresholds that the call has crossed. A calendar window crosses each once a
   * period, unless it is reset. Other limits cross it again when something was given back and used again, and
   * credits also after a grant. A denial, a grant and a change of plan cross nothing. A reservation crosses
   * nothing, but its `commit` does; of dated credits an estimate crosses. With reservations, use a calendar
   * window or undated credits, because other limits may then report a threshold too early, twice or never. A
   * share of credits is a share of all their grants. Default: none.
   */
  readonly thresholds?: readonly Threshold[]
}

export interface Keeping {
  /**
   * Keeps the rows of fixed and calendar windows that have ended, until a call opens the next window and
   * reports `ended`, or `closePeriods` removes them. Calls then sweep nothing, and `cleanup` deletes only other
   * rows. Every limiter of the prefix must set it. Default: `false`.
   */
  readonly keepEnded: true
  /**
   * How long after the end of a period a `commit`, `release` or `settle` may still correct it. If the period
   * was handed out by then, the answer has the `correction`. Without it, and in a `commit` of `reserveAll`, a
   * late cost above the estimate is charged to the new period, and nothing is given back. Default: none.
   */
  readonly grace?: Duration
  readonly cleanupProbability?: 0
}

export interface EitherTable {
  /** Keeps the counts in the logged table, where they survive a crash. Default: `false`, the UNLOGGED table. */
  readonly durable?: boolean
  readonly synchronousCommit?: never
}

export interface DurableTable {
  /** Keeps the counts in the logged table, where they survive a crash. */
  readonly durable: true
  /**
   * Waits for the WAL flush, so that not even the last charges before a crash are lost. It applies to checks
   * outside a caller's transaction; inside, the transaction's own commit decides. Default: `false`.
   */
  readonly synchronousCommit?: boolean
}

/** Where a `Quota` keeps its counts. */
export type QuotaTable =
  | {
      /**
       * Whether the counts are kept in the logged table, where they survive a crash. `false` keeps them in the
       * UNLOGGED table. Default: `true`.
       */
      readonly durable?: boolean
      readonly synchronousCommit?: never
    }
  | (Pick<DurableTable, 'synchronousCommit'> & {
      /** Keeps the counts in the logged table, where they survive a crash. */
      readonly durable?: true
    })

export interface NoDenialsKept {
  /**
   * Answers repeated denials from memory, as long as the database would answer the same. It does not see what
   * other processes give back meanwhile. Default: `false`.
   */
  readonly inMemoryBlock?: boolean
  readonly maxBlockedKeys?: never
}

export interface DenialsKept {
  /** Answers repeated denials from memory. */
  readonly inMemoryBlock: true
  /**
   * How many denied keys are remembered. The least recently checked one is dropped first. Default: `10_000`.
   */
  readonly maxBlockedKeys?: number
}

export interface NoDegrading {
  /**
   * The answer of a check outside a transaction if the database is unreachable, overloaded or too slow.
   * `'allow'` and `'deny'` answer with `degraded: true`. Both deny a call that has waited for its own key.
   * Mistakes in the setup are always thrown. Default: `'throw'`.
   */
  readonly onError?: 'throw'
  readonly onDegraded?: never
}

export interface Degrading {
  /** The answer of a check outside a transaction if the database is unreachable, overloaded or too slow. */
  readonly onError: 'allow' | 'deny'
  /** Gets the error of each such answer. The answer stands even if this throws or rejects. */
  readonly onDegraded?: (error: RatelimitError) => void
}

/** The transactions of a database. */
export type TransactionOf<D extends Database> = Parameters<Parameters<D['transaction']>[0]>[0]

/** What `ledger` of `drizzle-ratelimit/ledger` makes. */
export interface LedgerLayer<D extends Database = Database> {
  /** A limiter has one ledger. */
  readonly name: 'ledger'
  /** Gets the entries, in the transaction that makes them. */
  write(tx: TransactionOf<D>, entries: readonly Entry[]): PromiseLike<unknown>
}

/** A layer of any limiter. */
export type AnyLayer = Layer | LedgerLayer

export interface Layered<D> {
  /**
   * Layers: `prefetch(...)` of `drizzle-ratelimit/prefetch`, `countDenials()` of `drizzle-ratelimit/denials`,
   * `ledger(...)` of `drizzle-ratelimit/ledger`, `blocks()` of `drizzle-ratelimit/lockout`, `citus()` of
   * `drizzle-ratelimit/citus`, or some of your own. The order means nothing. Default: none.
   */
  readonly use?: readonly (Layer | LedgerLayer<PostgresOf<D>>)[]
}
