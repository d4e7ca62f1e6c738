import type { RateLimitTables } from '../../../schema/index.ts'
import type { Database, PostgresOf } from '../database/database.ts'
import type { Duration } from '../duration.ts'
import type { Limiter } from '../limits/algorithm.ts'
import type {
  Coalescing,
  Degrading,
  DenialsKept,
  DurableTable,
  EitherTable,
  Keeping,
  Layered,
  NoConnections,
  NoDegrading,
  NoDenialsKept,
  NoPeriods,
  QuotaTable,
  Reporting,
  Sweeping,
} from './choices.ts'

// The plain choice is the last one: TypeScript 5 compares a mistake with the last ones.

type EitherConfig<D> = CommonConfig<D> &
  Layered<D> &
  (Coalescing | NoConnections) &
  (DenialsKept | NoDenialsKept) &
  (Degrading | NoDegrading)

/** Options of the constructor of {@link Ratelimit}. */
export type RatelimitConfig<D = Database> = EitherConfig<D> & NoPeriods & (DurableTable | EitherTable)

/** Options of the constructor of `Quota`. */
export type QuotaConfig<D = Database> = EitherConfig<D> & (Keeping | Sweeping) & Reporting & QuotaTable

/** Options of every limiter. */
export interface CommonConfig<D = Database> {
  /** Any Drizzle Postgres database, or a transaction, which every call then joins. */
  readonly db: PostgresOf<D>
  /** The limit, from a function such as `Ratelimit.tokenBucket` or `calendarWindow`. */
  readonly limiter: Limiter
  /** The limiter's namespace. The same key under two prefixes is two rows. */
  readonly prefix: string
  /**
   * The time, for tests. If two clocks differ by more than a period, the limit does not work: each process
   * finds the other's row too far from its own time, and starts it again. Default: the database's clock, which
   * all processes share.
   */
  readonly clock?: (() => Date) | undefined
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
  /**
   * Creates missing tables on first use outside a transaction. The environment variable
   * `PG_RATELIMIT_DISABLE_AUTO_MIGRATE=true` forbids it. Default: `false`.
   */
  readonly autoMigrate?: boolean
  /**
   * Gets the promise of work that continues after an answer: a sweep, or the refund of a grant that came after
   * the end of `blockUntilReady`. For runtimes that stop a request's work at its response: `waitUntil` of
   * Workers or Vercel, `after` of Next. Default: none; a sweep that is cut off does no harm.
   */
  readonly waitUntil?: ((promise: Promise<unknown>) => void) | undefined
  /**
   * Whether each connection keeps prepared statements, so that they are planned once, with node-postgres,
   * postgres.js, neon-serverless and vercel-postgres. `true` keeps them in transactions too, `false` keeps
   * none. If a pooler refuses one, the limiter stops preparing; inside a transaction, the refusal breaks that
   * transaction. Default: outside transactions.
   */
  readonly preparedStatements?: boolean
  /**
   * Tries out a limit. Calls that it would deny pass and are not charged, and their answers have the denial in
   * `wouldDeny`. Default: `false`.
   */
  readonly dryRun?: boolean
  /**
   * What a call does if it meets a row of another algorithm, or of a window of another length. `'restart'`
   * replaces the row's state. `'throw'` refuses the call with `OTHER_PLAN` and does not change the row.
   * Default: `'restart'`, with a warning if two limiters of one prefix would replace each other's rows.
   */
  readonly onOtherPlan?: 'restart' | 'throw'
  /**
   * How long a call outside a transaction may take. After that, a call that waits for its turn fails with
   * `TIMEOUT` and is not charged; a call that was sent fails with `OUTCOME_UNKNOWN`. With `false` only the
   * driver and the server limit it. Default: `'5s'`.
   */
  readonly timeout?: Duration | false
  /**
   * Stores hashes in place of keys. Keys may then have any length, and lists such as `usage` show the hashes.
   * `true` stores the SHA-256: a reader of the table can find the rows of addresses by guessing. A secret of at
   * least 16 characters stores the HMAC-SHA-256, which cannot be guessed without the secret. After a change of
   * the secret, every key starts again. Default: `false`.
   */
  readonly hashKeys?: boolean | string
}
