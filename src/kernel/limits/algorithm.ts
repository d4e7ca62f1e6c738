import type { SQL } from 'drizzle-orm'

// The words used here. A row is a row of the table. A state is the part of a row that belongs to one algorithm,
// with times as Unix milliseconds. To advance a state is to move it to now, past the windows that have ended.
// An amount is the rate times the granted calls. The amount of a refund is negative.

/**
 * A number in SQL. It is always double precision, and so is each constant in a formula. For an operator on two
 * different types, Postgres searches the whole `search_path`, and a role that may create operators in `public`
 * could have made one that matches better.
 * https://www.postgresql.org/docs/current/typeconv-oper.html
 */
export type Expression = SQL<number>

export type StateColumn = 'count' | 'prevCount' | 'windowStart' | 'tokens' | 'lastRefill'

/**
 * What a row notes of the charge of another row: the units; the start of the window that paid, or the time at
 * which the bucket that paid is full again; what was used before, or what the algorithm has in its place; and 1
 * if a dry run let the call pass, or 0.
 */
export type Noted = 'rate' | 'at' | 'before' | 'dryRun'

/** The kind of rows that an algorithm has. */
export interface RowKind {
  /** The columns that its rows fill. The other columns of a state are null. */
  readonly columns: readonly StateColumn[]
  /** Columns that a row may fill or not. A call that does not use them leaves them as they are. */
  readonly optional?: readonly StateColumn[]
  /** The column with the time at which the row was written. */
  readonly datedBy: 'windowStart' | 'lastRefill'
  /** Whether each row counts a period, which ends and can be closed. Default: `false`. */
  readonly hasPeriods?: true
}

export type Expressions<Name extends string> = { readonly [name in Name]: Expression }
export type Numbers<Name extends string> = { readonly [name in Name]: number }

/**
 * The parameters of every algorithm: the capacity, the time that a used-up limit needs to be full again, and
 * the grid on which rows expire.
 */
export type CommonParam = 'limit' | 'periodMs' | 'expiryGridMs'

/**
 * The formulas that run in the database, where the row is locked.
 *
 * A row that does not fill exactly the algorithm's columns belongs to another algorithm. It never holds, and
 * the column that dates it is null here. `holds` need not check that.
 */
export interface SqlFormulas<Column extends StateColumn, Param extends string> {
  /**
   * The time at which a row is read. Default: the clock's, or the row's if the row holds and is ahead of the
   * clock.
   */
  now?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): Expression
  /** Whether a row still counts. If false or null, the state is a fresh one. Default: true. */
  holds?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): SQL<boolean>
  /**
   * The state of a row that holds, moved past the windows that have ended. Its argument is the clock and not
   * `now`, because `now` is worked out at the same time; the row's date may be later. Default: the row's state.
   */
  advance?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): Expressions<Column>
  /**
   * For an algorithm with periods: whether a row that does not hold belongs to a period that is over. Answers
   * then report the usage of that period.
   */
  ended?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): SQL<boolean>
  /**
   * For an algorithm that keeps it: how much of a row's count is reserved. Reported together with the usage.
   */
  reserved?(row: Expressions<Column>): Expression
  /** The state of a key that has no row. */
  fresh(now: Expression, params: Expressions<Param>): Expressions<Column>
  /** How much an advanced state has left. Below 0 in debt. */
  available(state: Expressions<Column>, now: Expression, params: Expressions<Param>): Expression
  /** How much of an advanced state is used. In debt it is more than the limit. */
  used(state: Expressions<Column>, now: Expression, params: Expressions<Param>): Expression
  /**
   * The state after `amount` is taken at `now` from an advanced state that has `available` left. `reserved` is
   * added to the reserved part of the count. Only an algorithm that keeps `settled` reads it.
   */
  consume(
    state: Expressions<Column>,
    now: Expression,
    available: Expression,
    amount: Expression,
    params: Expressions<Param>,
    reserved: Expression,
  ): Expressions<Column>
  /**
   * For an algorithm without a capacity of its own: the state after `amount` is added to the capacity of an
   * advanced state.
   */
  add?(state: Expressions<Column>, now: Expression, amount: Expression): Expressions<Column>
  /** For an algorithm that can be blocked: the state of a key that is blocked for a time, from `now`. */
  block?(state: Expressions<Column>, now: Expression, lengthMs: Expression): Expressions<Column>
  /** For an algorithm that can be blocked: when the block of an advanced state ends. Null without one. */
  blockedUntil?(state: Expressions<Column>, params: Expressions<Param>): Expression
  /**
   * For an algorithm that blocks for longer each time: what a refund to a window that is over still changes. It
   * gives no units back.
   */
  readonly late?: {
    /** Whether the window that began at `paid` has left a trace. Null if it is not known. */
    changes(state: Expressions<Column>, paid: Expression, params: Expressions<Param>): SQL<boolean>
    /** The state without the trace. */
    forget(state: Expressions<Column>, paid: Expression, params: Expressions<Param>): Expressions<Column>
  }
  /**
   * For rows that note what another row of their list has paid: the state of a new row.
   */
  note?(now: Expression, paid: Expressions<Noted>, params: Expressions<Param>): Expressions<Column>
  /**
   * What such a row notes in place of what was used before, of an advanced state. Default: what was used.
   */
  before?(state: Expressions<Column>, params: Expressions<Param>): Expression
  /** For an algorithm whose capacity depends on the row: the capacity. Default: the limit. */
  capacity?(state: Expressions<Column>, params: Expressions<Param>): Expression
  /** The earliest time at which deleting the row loosens nothing. */
  expiresAt(state: Expressions<Column>, params: Expressions<Param>): Expression
  /**
   * For an algorithm whose periods have a length: whether a row expires when a period of this limiter does.
   * `onGrid` rounds a time up to the grid. `paid` is for calls that settle or give back: the start of the
   * window that paid, or null.
   */
  isOfPeriod?(
    row: Expressions<Column>,
    expires: Expression,
    params: Expressions<Param>,
    onGrid: (time: Expression) => Expression,
    paid?: () => Expression,
  ): SQL<boolean>
  /**
   * For an algorithm whose periods differ in length: whether a row belongs to the present period, or to the
   * last one, which began at `previousStart`. Default: `isOfPeriod`.
   */
  isRecent?(row: Expressions<Column>, params: Expressions<Param>, previousStart: Expression): SQL<boolean>
  /** When an advanced state that has less than the limit is full again. Default: when it expires. */
  wholeAt?(state: Expressions<Column>, params: Expressions<Param>): Expression
  /** For an algorithm that refills: how calls are given start times. */
  readonly starts?: StartFormulas<Column, Param>
}

/** The formulas of calls that are given start times. */
export interface StartFormulas<Column extends StateColumn, Param extends string> {
  /** When an advanced state that has less than `wanted` has it, if nothing else is taken. */
  whenAvailable(state: Expressions<Column>, wanted: Expression, params: Expressions<Param>): Expression
  /** How much comes at once. */
  refill(params: Expressions<Param>): Expression
}

/**
 * The same formulas on numbers, for the state that a statement returned. The operations have the same order as
 * in SQL, so that the results are equal to the last bit.
 */
export interface NumberFormulas<Column extends StateColumn, Param extends string> {
  fresh(now: number, params: Numbers<Param>): Numbers<Column>
  /** How much an advanced state will have left at `time` if nothing else is taken. */
  available(state: Numbers<Column>, time: number, params: Numbers<Param>): number
  used(state: Numbers<Column>, now: number, params: Numbers<Param>): number
  consume(
    state: Numbers<Column>,
    now: number,
    amount: number,
    params: Numbers<Param>,
    reserved: number,
  ): Numbers<Column>
  add?(state: Numbers<Column>, now: number, amount: number): Numbers<Column>
  block?(state: Numbers<Column>, now: number, lengthMs: number): Numbers<Column>
  /** For an algorithm that can be blocked: when the block of an advanced state ends. Undefined without one. */
  blockedUntil?(state: Numbers<Column>, params: Numbers<Param>): number | undefined
  capacity?(state: Numbers<Column>, params: Numbers<Param>): number
  /** For an algorithm whose capacity may grow with time: the most that it can be. Default: the limit. */
  most?(state: Numbers<Column>, params: Numbers<Param>): number
  /** When an advanced state that has less than its capacity is full again. Default: when it is available. */
  wholeAt?(state: Numbers<Column>, params: Numbers<Param>): number
  /** For an algorithm whose periods depend on the ones before: the state of the period after a state's. */
  next?(state: Numbers<Column>, params: Numbers<Param>): Numbers<Column>
  before?(state: Numbers<Column>): number
  /** About when `wanted` will be available. The search for the exact time begins there. */
  guess(state: Numbers<Column>, wanted: number, now: number, params: Numbers<Param>): number
}

/** From `start` to before `end`, in Unix milliseconds. */
export interface Period {
  /** Unix milliseconds at which it begins. */
  readonly start: number
  /** Unix milliseconds at which it is over. */
  readonly end: number
}

/** A period of a fixed or calendar window that is over. */
export interface EndedPeriod extends Period {
  /** Units used in the period. In debt or after a downgrade it is more than the limit. */
  readonly used: number
  /**
   * Only for calendar windows: the part of `used` that was reserved and not settled. A `commit` or `release`
   * gives nothing back to a period that is over.
   */
  readonly reserved?: number
}

export type PeriodAt = (time: number) => Period

/** The part of an algorithm that works out answers. */
export interface Answering<Column extends StateColumn, Param extends string> {
  /** Its statements are kept under this name. */
  readonly name: string
  /**
   * A window counts the used units, a bucket the remaining ones. With a window, `windowStart` names the count
   * that pays: it is set when a count begins, and stays while the count lasts.
   */
  readonly kind: 'window' | 'bucket'
  /** Whether it counts whole units only, so that a fractional rate is refused. */
  readonly integersOnly: boolean
  /** By how many units a rate may exceed the available ones and still be granted, as fractions are inexact. */
  readonly tolerance: number
  /**
   * Whether the database has to see each call, so that no units are taken in advance, and forced charges are
   * decided one by one. Default: `false`.
   */
  readonly seesEachCall?: true
  /**
   * For an algorithm that keeps it: the settled part of a count, which is the count without the reservations;
   * and the most that was settled in the window so far.
   */
  readonly settled?: {
    readonly now: (state: Numbers<Column>) => number
    readonly most: (state: Numbers<Column>) => number
  }
  readonly numbers: NumberFormulas<Column, Param | CommonParam>
}

/**
 * An algorithm is arithmetic and nothing else. It knows no clock, no table and no key.
 *
 * The statements decide and write with the formulas in SQL. The formulas on numbers work out the answers.
 */
export interface Algorithm<Column extends StateColumn, Param extends string>
  extends RowKind,
    Answering<Column, Param> {
  readonly columns: readonly Column[]
  readonly datedBy: Column & RowKind['datedBy']
  /** The parameters that its formulas in SQL use, in addition to the common ones. */
  readonly params: readonly Param[]
  /** Whether a key has several rows. Default: `false`. */
  readonly hasSeveralRows?: boolean
  readonly sql: SqlFormulas<Column, Param | CommonParam>
  /**
   * For an algorithm whose parameters depend on the time: whether the parameters that were sent are right for
   * `now`. If not, the statement decides nothing, and runs again with the parameters for the time that it
   * returned.
   */
  applies?(now: Expression, params: Expressions<Param | CommonParam>): SQL<boolean>
  /**
   * For an algorithm that gives start times: the same algorithm for the calls that give them, or give units
   * back. Its states also say until when starts are promised.
   */
  readonly promising?: AnyAlgorithm
}

/**
 * An algorithm as the other folders see it. Its states have only its own columns, which are in `columns`, and
 * it reads no others.
 */
export type AnyAlgorithm = Algorithm<StateColumn, string>

/** The text of a statement depends on these. */
export interface Rules {
  readonly algorithm: AnyAlgorithm
  /**
   * If false, a new key has less than the limit. A denied first check then writes the row, so that it begins to
   * fill. The rows never expire, because a deleted row would start with less again.
   */
  readonly startsFull: boolean
  /** Whether calls refuse a row of another algorithm or period. */
  readonly refusesOther?: boolean
}

export type Params = Numbers<string> & Numbers<CommonParam>

/** A limit, made by a function such as `Ratelimit.tokenBucket` or `calendarWindow`. */
export type Limiter = StoredLimiter | Unlimited

/** The part of a limit that is known without the database: for headers, and for pages that list plans. */
export interface Described {
  /** The capacity: `tokens`, `maxTokens` or the `burst` of `gcra`; `Infinity` for `unlimited`. */
  readonly limit: number
  /**
   * Milliseconds: the length of a fixed or sliding window, or the time from empty to full of a bucket.
   * Undefined for the calendar, whose periods have different lengths, and for `unlimited`.
   */
  readonly windowMs: number | undefined
}

/** An algorithm with its parameters: a limit that is counted in a row. */
export interface StoredLimiter extends Rules, Described {
  readonly stored: true
  readonly params: Params
  /** Equal for two limiters that are the same limit. */
  readonly signature: string
  /** Equal for two limiters that can continue each other's rows. */
  readonly rows: string
  /** For calendar windows: the period that holds a time. Its start and end are parameters too. */
  readonly periodAt?: PeriodAt
  /** If the keys of rows have names in them: the limited key in the key of a row, and the name. */
  readonly rowIn?: (row: string) => { readonly key: string; readonly name?: string }
  /** For rows that note what others have paid: the limit of a row that notes this payment. */
  readonly noting?: (paid: Numbers<Noted>) => StoredLimiter
  /** For calendar windows: the same periods with another limit. */
  readonly withTokens?: (tokens: number) => StoredLimiter
}

/** No limit: it has no rows and runs no statement. */
export interface Unlimited extends Described {
  readonly stored: false
  readonly algorithm: Answering<StateColumn, string>
  readonly params: Params
}
