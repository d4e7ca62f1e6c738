import type { RateLimitTables } from '../schema/index.ts'
import type { Limiter } from './algorithms/algorithm.ts'
import type { Concurrency } from './algorithms/concurrency.ts'
import type { Credits } from './algorithms/credits.ts'
import type { Database } from './database/database.ts'
import type { Duration } from './duration.ts'
import type { RatelimitError } from './errors.ts'
import type { NamesOf } from './options.ts'
import type { Entry } from './runtime/entry.ts'

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

/** Options of every limiter. */
interface CommonConfig<D extends Database = Database> {
  /** Any Drizzle Postgres database, or a transaction, which every call then joins. */
  readonly db: D
  /** The limit, from a function such as `Ratelimit.tokenBucket` or `calendarWindow`. */
  readonly limiter: Limiter
  /** The limiter's namespace. The same key under two prefixes is two rows. */
  readonly prefix: string
  /**
   * The time, for tests. Two clocks that differ by more than a period break the limit: each finds the other's
   * row too far from its own time, and starts it again. Default: the database's clock, which all processes
   * share.
   */
  readonly clock?: () => Date
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
  /**
   * Whether Citus has distributed the table by `key`, over the shards of several servers. Statements are then
   * such that Citus can send each to one server. Default: `false`.
   */
  readonly distributed?: boolean
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
  readonly waitUntil?: (promise: Promise<unknown>) => void
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
   * The reaction to a row of another algorithm, or of a window of another length. `'begin anew'` replaces the
   * row's state. `'throw'` refuses the call with `OTHER_PLAN` and does not change the row. Default:
   * `'begin anew'`, with a warning if two limiters of one prefix would replace each other's rows.
   */
  readonly onOtherPlan?: 'begin anew' | 'throw'
  /**
   * How long a call outside a transaction may take. After that, a call that waits for its turn fails with
   * `TIMEOUT` and is not charged; a call that was sent fails with `OUTCOME_UNKNOWN`. Default: only the limits
   * of the driver and the server.
   */
  readonly timeout?: Duration
  /**
   * Stores hashes in place of keys. Keys may then have any length, and lists such as `usage` show the hashes.
   * `true` stores the SHA-256: a reader of the table can find the rows of addresses by guessing. A secret of at
   * least 16 characters stores the HMAC-SHA-256, which cannot be guessed without the secret. After a change of
   * the secret, every key starts again. Default: `false`.
   */
  readonly hashKeys?: boolean | string
  /**
   * Counts the denials of each key, for `denied`. Counts are kept in memory and added to hourly rows in the
   * background, never in your transaction. Rows are kept for a week. Default: none are counted.
   */
  readonly denials?: DenialOptions
  /**
   * The secret that signs the texts of reservations, `String(reservation)`, which `settle` accepts in another
   * process. At least 16 random characters. Default: none; reservations then have no text.
   */
  readonly reservationSecret?: string
}

/** How denials are counted. */
export interface DenialOptions {
  /**
   * How often the counts are written: at most an hour. A process that ends loses the counts since the last
   * write. Default: `'10s'`.
   */
  readonly every?: Duration
  /**
   * How many keys are counted at a time, from 1 to 500. If more keys are denied between two writes, the count
   * of a key may be too low: by at most a share of all denials, `1 / (top + 1)`. Default: `100`.
   */
  readonly top?: number
}

export const DENIAL_NAMES: NamesOf<DenialOptions> = { every: true, top: true }

interface EitherWay {
  /**
   * Whether calls that arrive together share a statement. `false` gives each call its own, for runtimes where
   * the work of one request cannot resolve a promise of another. Default: `true`, but `false` in Workers.
   */
  readonly coalesce?: boolean
  readonly connections?: never
}

interface Coalescing {
  /** Calls that arrive together share a statement. Default: `true`, but `false` in Workers. */
  readonly coalesce?: true
  /**
   * How many statements of this limiter may be under way outside transactions, each on a connection of the
   * pool. In addition, up to four may wait for rows that others hold, and one may sweep. Without coalescing it
   * has no meaning, because each call takes a connection. Default: `4`.
   */
  readonly connections?: number
}

interface Sweeping {
  /**
   * The share of calls that start a sweep of their prefix's expired rows, between 0 (none) and 1 (each). One
   * sweep runs at a time and deletes 100 rows at most. After a sweep that left no expired rows, none runs for
   * 50 ms. Default: `0.1`.
   */
  readonly cleanupProbability?: number
  readonly keepEnded?: false
  readonly grace?: never
}

interface Keeping {
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

interface EitherTable {
  /** Keeps the counts in the logged table, where they survive a crash. Default: `false`, the UNLOGGED table. */
  readonly durable?: boolean
  readonly synchronousCommit?: never
}

interface DurableTable {
  /** Keeps the counts in the logged table, where they survive a crash. */
  readonly durable: true
  /**
   * Waits for the WAL flush, so that not even the last charges before a crash are lost. It applies to checks
   * outside a caller's transaction; inside, the transaction's own commit decides. Default: `false`.
   */
  readonly synchronousCommit?: boolean
}

interface NoDenials {
  /**
   * Answers repeated denials from memory, as long as the database would answer the same. It does not see what
   * other processes give back meanwhile. Default: `false`.
   */
  readonly inMemoryBlock?: boolean
  readonly maxBlockedKeys?: never
}

interface Denials {
  /** Answers repeated denials from memory. */
  readonly inMemoryBlock: true
  /**
   * How many denied keys are remembered. The least recently checked one is dropped first. Default: `10_000`.
   */
  readonly maxBlockedKeys?: number
}

interface Throwing {
  /**
   * The answer of a check outside a transaction if the database is unreachable, overloaded or too slow.
   * `'allow'` and `'deny'` answer with `degraded: true`. Both deny a call that has waited for its own key.
   * Mistakes in the setup are always thrown. Default: `'throw'`.
   */
  readonly onError?: 'throw'
  readonly onDegraded?: never
}

interface Degrading {
  /** The answer of a check outside a transaction if the database is unreachable, overloaded or too slow. */
  readonly onError: 'allow' | 'deny'
  /** Gets the error of each such answer. The answer stands even if this throws or rejects. */
  readonly onDegraded?: (error: RatelimitError) => void
}

/** What a lease is. */
export interface LeaseTerms {
  /** The most units that a process takes in advance for a key. A whole number. */
  readonly tokens: number
  /** How long a process may use them. After that it gives back what is left. At most an hour. */
  readonly for: Duration
  /** How many keys are remembered. The least recently checked one is dropped first. Default: `10_000`. */
  readonly maxKeys?: number
}

interface Asking {
  /**
   * Shares of the limit and amounts, such as `[0.8, { used: 10_000 }, { left: 100 }]`. The answer of the call
   * that crosses one has it in `crossed`. A calendar window crosses each once a period, unless it
   * is reset. Other limits cross it again when something was given back and used again, and a balance also
   * after a grant. A denial, a grant and a change of plan cross nothing. A reservation crosses nothing, but its
   * `commit` does. With reservations, use a calendar window or a balance, because other limits may then report
   * a threshold too early, twice or never. A share of a balance is a share of all its grants. Default: none.
   */
  readonly thresholds?: readonly Threshold[]
  readonly lease?: never
  /**
   * Whether `block` can deny a key for a time, whatever it has used. Each charge then looks at a second row in
   * the same statement. A lockout can be blocked without it. It cannot be used with `dryRun` or
   * `inMemoryBlock`. Default: `false`.
   */
  readonly blocks?: boolean
}

interface Leasing {
  /**
   * Answers most calls of busy keys from memory. The second call of a key within `for` takes up to `tokens`
   * more than it needs, and the calls that follow use them. The unused ones are given back. Fixed and calendar
   * windows never exceed their limit; other limits grant in any time at most what they grant without leases in
   * a time that is longer by `for`. Default: none.
   */
  readonly lease: LeaseTerms
  readonly coalesce?: true
  readonly durable?: false
  readonly synchronousCommit?: never
  readonly keepEnded?: false
  readonly thresholds?: never
  readonly blocks?: false
}

/** The transactions of a database. */
export type TransactionOf<D extends Database> = Parameters<Parameters<D['transaction']>[0]>[0]

interface NotRecording {
  readonly onEntries?: never
}

interface Recording<D extends Database> {
  /**
   * Gets an entry for each charge, refund, reservation, settlement and grant, in the transaction that makes it:
   * what it writes with `tx` commits or rolls back together with the charge. Calls that share a statement hand
   * out their entries together. Calls outside of your transactions then take one of their own, so the driver
   * needs interactive transactions. With your `tx` they take a savepoint. If it throws or rejects, nothing is
   * charged, and the call rejects with `ENTRIES_FAILED`. A denial and a look call nothing. Default: none.
   */
  onEntries(tx: TransactionOf<D>, entries: readonly Entry[]): PromiseLike<unknown>
  readonly distributed?: false
  readonly lease?: never
}

/** Options of the constructor of {@link Ratelimit}. */
export type RatelimitConfig<D extends Database = Database> = CommonConfig<D> &
  (NotRecording | Recording<D>) &
  (Sweeping | Keeping) &
  (EitherWay | Coalescing) &
  (EitherTable | DurableTable) &
  (NoDenials | Denials) &
  (Throwing | Degrading) &
  (Asking | Leasing)

export const CONFIG_NAMES: NamesOf<RatelimitConfig> = {
  db: true,
  limiter: true,
  prefix: true,
  durable: true,
  synchronousCommit: true,
  cleanupProbability: true,
  keepEnded: true,
  grace: true,
  lease: true,
  blocks: true,
  inMemoryBlock: true,
  maxBlockedKeys: true,
  clock: true,
  tables: true,
  distributed: true,
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
  denials: true,
  onOtherPlan: true,
  onEntries: true,
}

/** The options that mean something for a limit on leases at once. */
type LeaseConfig = Pick<
  CommonConfig,
  'db' | 'prefix' | 'clock' | 'tables' | 'autoMigrate' | 'waitUntil' | 'timeout' | 'hashKeys'
> &
  Pick<Sweeping, 'cleanupProbability'> &
  Pick<EitherWay, 'coalesce'> &
  (EitherTable | DurableTable) & {
    /** The limit, from `Ratelimit.concurrency`. */
    readonly limiter: Concurrency
  }

/** Options of the constructor of {@link Ratelimit} for a limit on leases at once. */
export type ConcurrencyConfig = LeaseConfig & {
  readonly [Name in Exclude<keyof RatelimitConfig, keyof LeaseConfig>]?: never
}

export const CONCURRENCY_CONFIG_NAMES: NamesOf<ConcurrencyConfig> = {
  db: true,
  limiter: true,
  prefix: true,
  clock: true,
  tables: true,
  autoMigrate: true,
  waitUntil: true,
  timeout: true,
  hashKeys: true,
  cleanupProbability: true,
  coalesce: true,
  durable: true,
  synchronousCommit: true,
}

/**
 * What a {@link Ratelimit} limits: the rate of calls, how many leases there are at once, or what is taken from
 * grants of credits.
 */
export type Kind = 'rate' | 'concurrency' | 'credits'

/** A limiter of the kind. */
export type LimiterOf<K extends Kind> = (Limiter | Concurrency | Credits) & { readonly kind: K }

/** The key of a call that needs a limiter of one kind. With another kind, no key compiles. */
export type KeyFor<K extends Kind, Needed extends Kind> = K extends Needed ? string : never

/** The options for a limiter of the kind. */
export type ConfigOf<K extends Kind, D extends Database = Database> = (
  | RatelimitConfig<D>
  | ConcurrencyConfig
  | CreditsConfig
) & {
  readonly limiter: LimiterOf<K>
}

/** The options that mean something for credits in grants. */
type GrantedConfig = Pick<
  CommonConfig,
  | 'db'
  | 'prefix'
  | 'clock'
  | 'tables'
  | 'autoMigrate'
  | 'waitUntil'
  | 'timeout'
  | 'hashKeys'
  | 'preparedStatements'
> &
  Pick<Sweeping, 'cleanupProbability'> &
  Pick<EitherWay, 'coalesce'> &
  Pick<Asking, 'thresholds'> &
  (EitherTable | DurableTable) & {
    /** The credits, from `Ratelimit.credits`. */
    readonly limiter: Credits
  }

/** Options of the constructor of {@link Ratelimit} for credits in grants. */
export type CreditsConfig = GrantedConfig & {
  readonly [Name in Exclude<keyof RatelimitConfig, keyof GrantedConfig>]?: never
}

export const CREDITS_CONFIG_NAMES: NamesOf<CreditsConfig> = {
  ...CONCURRENCY_CONFIG_NAMES,
  preparedStatements: true,
  thresholds: true,
}

/** Options of `acquire`. */
export interface AcquireOptions {
  /** How long to wait for a slot. Default: `0`, not at all. */
  readonly timeout?: Duration | undefined
  /** Ends the wait: the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  /** Another limit for this call, such as a customer's plan. Default: the limiter's. */
  readonly limiter?: Concurrency | undefined
  /**
   * Your transaction. The lock of the slot's row is then the lease: it ends with the transaction, however that
   * ends. Default: none.
   */
  readonly tx?: Database | undefined
}

export const ACQUIRE_NAMES: NamesOf<AcquireOptions> = { timeout: true, signal: true, limiter: true, tx: true }
export const LEASE_NAMES: NamesOf<LeaseTerms> = { tokens: true, for: true, maxKeys: true }

/** Options of a look or a check. */
export interface CallOptions {
  /** Your transaction, to commit or roll back the call with it. Default: the limiter's `db`. */
  readonly tx?: Database | undefined
  /**
   * Another limit for this call, such as a customer's plan. A balance accepts no other algorithm. Default: the
   * limiter's.
   */
  readonly limiter?: Limiter | undefined
}

/** The option of calls that join your transaction. */
export type TxOptions = Pick<CallOptions, 'tx'>

export const TX_NAMES: NamesOf<TxOptions> = { tx: true }

export const CALL_NAMES: NamesOf<CallOptions> = { ...TX_NAMES, limiter: true }

/** Options of `changePlan`. */
export interface ChangePlanOptions {
  /** The plan until now: a fixed or calendar window. Default: the limiter's. */
  readonly from?: Limiter | undefined
  /** The plan from now on: a fixed or calendar window. */
  readonly to: Limiter
  /** The transaction that changes the plan in your own tables. Default: one of its own. */
  readonly tx?: Database | undefined
}

export const CHANGE_NAMES: NamesOf<ChangePlanOptions> = { ...TX_NAMES, from: true, to: true }

/** An event that is charged once, however often its call is repeated. */
export interface Once {
  /**
   * The unique id of the event, such as a webhook's. All keys of the limiter share the ids, so put the customer
   * into an id that the customer chooses. Id and prefix may have about 1,000 bytes together.
   */
  readonly id: string
  /** How long the id is remembered, from the call that was charged. Its row is swept afterwards. */
  readonly for: Duration
}

/** The option of calls that can be repeated safely. */
export interface OnceOptions {
  /**
   * Charges an event once. If its id was used before, nothing is charged, and the answer has `repeated: true`.
   * A denial, a failure and a rollback do not use up the id. Default: each call is charged.
   */
  readonly once?: Once | undefined
}

/** Options of `grant`. */
export interface GrantOptions extends CallOptions, OnceOptions {}

export const GRANT_NAMES: NamesOf<GrantOptions> = { ...CALL_NAMES, once: true }

/** Options of calls for several limits. */
export interface AllOptions extends Pick<CallOptions, 'tx'>, OnceOptions {}

export const ALL_NAMES: NamesOf<AllOptions> = { ...TX_NAMES, once: true }

/** Options of `Ratelimit.spend`. */
export interface SpendOptions extends AllOptions {
  /** The units to take from the limits together. Whole if one of them counts whole units. */
  readonly rate: number
  /**
   * The least that is worth granting. If they have less than `rate` together, but at least this, the call takes
   * all that they have, and `granted` says how much that is. Default: `rate`.
   */
  readonly atLeast?: number | undefined
}

/** Options of a check. */
export interface LimitOptions extends CallOptions, OnceOptions {
  /** The cost of the call. 0 looks, a negative rate gives back. Whole for windows. Default: `1`. */
  readonly rate?: number | undefined
  /**
   * Consumes even if too little is left, for a cost that is known only afterwards. Refills or the window's end
   * pay back the debt. Default: `false`.
   */
  readonly force?: boolean | undefined
  /**
   * The least that is worth granting. If less than `rate` is left, but at least this, the call takes all that
   * is left; the answer has it in `granted`. Between 0.000001 and `rate`; whole for windows. Default: the whole
   * rate or nothing.
   */
  readonly atLeast?: number | undefined
}

/** Options of a refund to the window that paid. */
export interface RefundOptions extends CallOptions, OnceOptions {
  /** The amount to give back, as a number below 0. */
  readonly rate: number
  /**
   * The `start` of the charge's answer, in Unix milliseconds. Only the window that began then gets the refund;
   * after its end, nothing is given back, and nothing under a limit without windows. Undefined for a charge of
   * a bucket.
   */
  readonly start: number | undefined
}

/** Options of an estimate without a name. */
export interface PlainReserveOptions extends Omit<LimitOptions, 'force'> {
  /** Makes it a reservation with a name. */
  readonly id?: never
  /** Not without `id`. */
  readonly expires?: never
}

/** Options of an estimate with a name. */
export interface NamedReserveOptions extends Omit<LimitOptions, 'force' | 'once'> {
  /**
   * The name of the reservation. A key's reservations have different names: the same name again charges
   * nothing, and the answer has `repeated: true`. Prefix and key may have about 1,000 bytes together with twice
   * the id.
   */
  readonly id: string
  /**
   * How long the work may take. After that, `settleExpired` may end the reservation. Until it is settled it
   * stays open, and its name is remembered for a day from its end, or from the settlement if that is later.
   */
  readonly expires: Duration
  /** The name is charged once by itself. */
  readonly once?: never
}

/** Options of `reserve`. */
export type ReserveOptions = PlainReserveOptions | NamedReserveOptions

export const RESERVE_NAMES: NamesOf<ReserveOptions> = {
  ...GRANT_NAMES,
  rate: true,
  atLeast: true,
  id: true,
  expires: true,
}

export const LIMIT_NAMES: NamesOf<LimitOptions | RefundOptions> = {
  ...GRANT_NAMES,
  rate: true,
  atLeast: true,
  force: true,
  start: true,
}

/** Options of a grant of `Ratelimit.credits`. */
export interface CreditGrantOptions extends Pick<CallOptions, 'tx'> {
  /**
   * The name of the grant, such as a payment's id. A key's grants have different ids: the same id again grants
   * nothing. Key, id and prefix may have about 1,000 bytes together, of which the id counts twice.
   */
  readonly id: string
  /** When the grant ends, or how long it lasts. From then on it has nothing left. Default: never. */
  readonly expires?: Date | Duration | undefined
  /** Which grant is used first: a whole number from 0, the first, to 100. Default: `50`. */
  readonly priority?: number | undefined
}

/** Options of a check of `Ratelimit.credits`. */
export type CreditLimitOptions = Pick<LimitOptions, 'tx' | 'once' | 'rate' | 'force' | 'atLeast'>

/** Options of an estimate on `Ratelimit.credits`. */
export type CreditReserveOptions = Omit<CreditLimitOptions, 'force'>

/** Options of `schedule`. */
export interface ScheduleOptions extends CallOptions {
  /** How long the call may have to wait for its start. */
  readonly within: Duration
  /** The cost of the call, above 0. Default: `1`. */
  readonly rate?: number | undefined
}

export const SCHEDULE_NAMES: NamesOf<ScheduleOptions> = { ...CALL_NAMES, within: true, rate: true }

/** Options of `blockUntilReady`. */
export interface BlockOptions {
  /** The cost of the call. Default: `1`. */
  readonly rate?: number | undefined
  /** Another limit for this call, such as a customer's plan. Default: the limiter's. */
  readonly limiter?: Limiter | undefined
  /** Ends the wait: the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

export const BLOCK_NAMES: NamesOf<BlockOptions> = { rate: true, limiter: true, signal: true }
