import type { RateLimitTables } from '../schema/index.ts'
import type { Limiter } from './algorithms/algorithm.ts'
import type { Database } from './database/database.ts'
import type { Duration } from './duration.ts'
import type { RatelimitError } from './errors.ts'
import type { NamesOf } from './options.ts'

/** Options of every limiter. */
interface CommonConfig {
  /** Any Drizzle Postgres database, or a transaction: then every call joins it. */
  readonly db: Database
  /** The limit, from a function such as `Ratelimit.tokenBucket` or `calendarWindow`. */
  readonly limiter: Limiter
  /** The limiter's namespace: the same key under two prefixes is two rows. */
  readonly prefix: string
  /**
   * The time, for tests. Two clocks that are more than a period apart mean no limit at all: each finds the
   * other's row too far from its own time, and starts it afresh. Default: the database's clock, which all
   * processes share.
   */
  readonly clock?: () => Date
  /** Tables of your own, from `rateLimitTables`. Default: the shipped two. */
  readonly tables?: RateLimitTables
  /**
   * Creates missing tables on first use outside a transaction. `PG_RATELIMIT_DISABLE_AUTO_MIGRATE=true` in
   * the environment forbids it. Default: `false`.
   */
  readonly autoMigrate?: boolean
  /**
   * Is given the promise of what goes on after an answer: a sweep, or giving back what a check was granted
   * after `blockUntilReady` had ended. For runtimes that stop a request's work with its answer: `waitUntil` of
   * Workers or Vercel, `after` of Next. Default: none; a sweep that is cut off does no harm.
   */
  readonly waitUntil?: (promise: Promise<unknown>) => void
  /**
   * Has each connection keep statements, so that it plans them once: on node-postgres, postgres.js,
   * neon-serverless and vercel-postgres. If a pooler refuses that outside a transaction, statements are sent
   * without it from then on. `true` keeps them in transactions too, where the first refusal breaks the
   * transaction; `false` keeps none. Default: outside transactions.
   */
  readonly preparedStatements?: boolean
  /**
   * Shares of the limit, such as `[0.8, 1]`: the answer of the call that crosses one has it in `crossed`. A
   * calendar window crosses each once a period, unless it is reset. Other limits cross it again when
   * something was given back and used again. A denial and a change of plan cross nothing. A reservation crosses
   * nothing, its `commit` does. Beside reservations use a calendar window: other limits may then tell a share
   * too early, twice or never. Default: none.
   */
  readonly thresholds?: readonly number[]
  /**
   * Tries a limit out. A call that it would deny passes without being charged, and the answer has the denial
   * in `wouldDeny`. Default: `false`.
   */
  readonly dryRun?: boolean
  /**
   * What a call does that meets a row of another algorithm, or of a window of another length: `'throw'` refuses
   * it with `OTHER_PLAN` and leaves the row as it is. Default: `'begin anew'`, and a warning where two limiters
   * of one prefix would do that to each other.
   */
  readonly onOtherPlan?: 'begin anew' | 'throw'
  /**
   * How long a call outside a transaction may take. A call that still waits for its turn then fails with
   * `TIMEOUT` and is not charged; one that is under way fails with `OUTCOME_UNKNOWN`. Default: no limit but
   * those of the driver and the server.
   */
  readonly timeout?: Duration
  /**
   * Stores hashes in place of keys. Keys may then have any length, and lists such as `usage` show the hashes.
   * `true` is the SHA-256: whoever reads the table finds the rows of addresses that they know or guess. A
   * secret of at least 16 characters makes it the HMAC-SHA-256, which nobody can match without the secret. With
   * another secret every key begins anew. Default: `false`.
   */
  readonly hashKeys?: boolean | string
  /**
   * Signs the texts of reservations, `String(reservation)`, which `settle` takes in another process. At least
   * 16 characters that nobody can guess. Default: none; reservations then have no text.
   */
  readonly reservationSecret?: string
}

interface EitherWay {
  /**
   * Whether calls that arrive together share a statement. `false` gives each call its own: for runtimes where
   * a promise cannot be resolved by the work of another request. Default: `true`, and `false` in Workers.
   */
  readonly coalesce?: boolean
  readonly connections?: never
}

interface Coalescing {
  /** Calls that arrive together share a statement. Default: `true`, and `false` in Workers. */
  readonly coalesce?: true
  /**
   * How many statements of this limiter may be under way outside transactions, each on a connection of the
   * pool. Besides, up to four may wait for rows that others hold, and one may sweep. Without coalescing it
   * means nothing: each call takes a connection. Default: `4`.
   */
  readonly connections?: number
}

interface Sweeping {
  /**
   * Share of calls that ask for a sweep of their prefix's expired rows, from 0 (none) to 1 (each). One sweep
   * runs at a time and deletes 100 rows at most; after one that left nothing, none runs for 50 ms. Default:
   * `0.1`.
   */
  readonly cleanupProbability?: number
  readonly keepEnded?: false
}

interface Keeping {
  /**
   * Keeps the rows of fixed and calendar windows that have ended, until a call opens the next one and tells
   * `ended`, or `closePeriods` removes them. Calls then sweep nothing, and `cleanup` deletes other rows only.
   * Every limiter of the prefix must say so. Default: `false`.
   */
  readonly keepEnded: true
  readonly cleanupProbability?: 0
}

interface EitherTable {
  /**
   * Keep the counts in the logged table, where they survive a crash. Default: `false`, the UNLOGGED table.
   */
  readonly durable?: boolean
  readonly synchronousCommit?: never
}

interface DurableTable {
  /** Keep the counts in the logged table, where they survive a crash. */
  readonly durable: true
  /**
   * Wait for the WAL flush, so that not even the last charges before a crash are lost. Concerns checks
   * outside a caller's transaction; inside, the transaction's own commit decides. Default: `false`.
   */
  readonly synchronousCommit?: boolean
}

interface NoDenials {
  /**
   * Answer repeated denials from memory, for as long as the database would say the same. It does not see what
   * other processes give back meanwhile. Default: `false`.
   */
  readonly inMemoryBlock?: boolean
  readonly maxBlockedKeys?: never
}

interface Denials {
  /** Answer repeated denials from memory. */
  readonly inMemoryBlock: true
  /**
   * How many denied keys are remembered. The key asked about longest ago is forgotten first. Default:
   * `10_000`.
   */
  readonly maxBlockedKeys?: number
}

interface Throwing {
  /**
   * What a check outside a transaction answers if the database is away, overloaded or too slow: `'allow'` and
   * `'deny'` answer with `degraded: true`. Both deny a call that has waited for its own key. Mistakes in
   * setting up are always thrown. Default: `'throw'`.
   */
  readonly onError?: 'throw'
  readonly onDegraded?: never
}

interface Degrading {
  /** What a check outside a transaction answers if the database is away, overloaded or too slow. */
  readonly onError: 'allow' | 'deny'
  /** Is told the error of each such answer. The answer stands even if this throws or rejects. */
  readonly onDegraded?: (error: RatelimitError) => void
}

/** How a {@link Ratelimit} is made. */
export type RatelimitConfig = CommonConfig &
  (Sweeping | Keeping) &
  (EitherWay | Coalescing) &
  (EitherTable | DurableTable) &
  (NoDenials | Denials) &
  (Throwing | Degrading)

export const CONFIG_NAMES: NamesOf<RatelimitConfig> = {
  db: true,
  limiter: true,
  prefix: true,
  durable: true,
  synchronousCommit: true,
  cleanupProbability: true,
  keepEnded: true,
  inMemoryBlock: true,
  maxBlockedKeys: true,
  clock: true,
  tables: true,
  autoMigrate: true,
  timeout: true,
  onError: true,
  onDegraded: true,
  coalesce: true,
  connections: true,
  preparedStatements: true,
  waitUntil: true,
  thresholds: true,
  dryRun: true,
  hashKeys: true,
  reservationSecret: true,
  onOtherPlan: true,
}

/** Options of a look or a check. */
export interface CallOptions {
  /** A transaction of yours to join: the call commits or rolls back with it. Default: the limiter's `db`. */
  readonly tx?: Database | undefined
  /**
   * Another limit for this call: a customer's plan. A balance takes no other algorithm. Default: the limiter's.
   */
  readonly limiter?: Limiter | undefined
}

export const TX_NAMES: NamesOf<Pick<CallOptions, 'tx'>> = { tx: true }

export const CALL_NAMES: NamesOf<CallOptions> = { ...TX_NAMES, limiter: true }

/** Options of a check. */
export interface LimitOptions extends CallOptions {
  /** What the call costs. 0 looks, a negative rate gives back. Whole for windows. Default: `1`. */
  readonly rate?: number | undefined
  /**
   * Consume even if too little is left, for a cost known only afterwards. Refills or the window's end pay
   * back the debt. Default: `false`.
   */
  readonly force?: boolean | undefined
  /**
   * Take what there is, if there is less than `rate` and not less than this: the answer has it in `granted`.
   * From 0.000001 to `rate`; whole for windows. Default: all of the rate or nothing.
   */
  readonly atLeast?: number | undefined
}

/** Options of a refund to the window that paid. */
export interface RefundOptions extends CallOptions {
  /** What is given back, as a number below 0. */
  readonly rate: number
  /**
   * The `start` of the charge's answer. Only the window that began then gives back; after its end nothing does,
   * and nor do rows that are no windows. Unix milliseconds; undefined for a charge of a bucket: any row gives
   * back.
   */
  readonly start: number | undefined
}

export const RESERVE_NAMES: NamesOf<Omit<LimitOptions, 'force'>> = {
  ...CALL_NAMES,
  rate: true,
  atLeast: true,
}

export const LIMIT_NAMES: NamesOf<LimitOptions | RefundOptions> = {
  ...RESERVE_NAMES,
  force: true,
  start: true,
}

/** Options of waiting. */
export interface BlockOptions {
  /** What the call costs. Default: `1`. */
  readonly rate?: number | undefined
  /** Another limit for this call: a customer's plan. Default: the limiter's. */
  readonly limiter?: Limiter | undefined
  /** Ends the wait: the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

export const BLOCK_NAMES: NamesOf<BlockOptions> = { rate: true, limiter: true, signal: true }
