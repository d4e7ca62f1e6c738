import type { SQL } from 'drizzle-orm'

// The words used here. A row is what the table holds. A state is the part of a row that belongs to one
// algorithm, with times as Unix milliseconds. A state is advanced when the windows that ended before now are
// left behind. An amount is rate times granted calls; the amount of a refund is negative.

/**
 * A number in SQL, always double precision, and so is each constant in a formula. Postgres looks for an
 * operator over two types in the whole `search_path`: a role that may create some in `public` could have made a
 * better one.
 * https://www.postgresql.org/docs/current/typeconv-oper.html
 */
export type Expression = SQL<number>

/** The columns that a state can have. */
export type StateColumn = 'count' | 'prevCount' | 'windowStart' | 'tokens' | 'lastRefill'

/** How an algorithm's rows look. */
export interface RowKind {
  /** The columns that they fill. The other columns of a state are null. */
  readonly columns: readonly StateColumn[]
  /** The column that says when the row was written. */
  readonly datedBy: 'windowStart' | 'lastRefill'
  /** Whether each row counts one period, which ends and can be closed. */
  readonly hasPeriods: boolean
}

export type Expressions<Name extends string> = { readonly [name in Name]: Expression }
export type Numbers<Name extends string> = { readonly [name in Name]: number }

/**
 * The parameters of every algorithm: the capacity, the time in which a used-up limit is full again, and the
 * grid on which rows expire.
 */
export type CommonParam = 'limit' | 'periodMs' | 'expiryGridMs'

/**
 * The formulas that run in the database, where the row is locked.
 *
 * A row that does not fill exactly the algorithm's columns is another's. It does not hold, whatever `holds`
 * says, and the column that dates it is null here.
 */
export interface SqlFormulas<Column extends StateColumn, Param extends string> {
  /**
   * The time at which a row is read. Default: the clock's, or the row's if the row holds and is ahead of the
   * clock.
   */
  now?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): Expression
  /** Whether a row still counts. If false or null, the state is a fresh one. Default: it does. */
  holds?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): SQL<boolean>
  /**
   * The state of a row that holds, with the windows that have ended left behind. It is given the clock and not
   * `now`, which is worked out at the same time: the row's date may be later. Default: the row's state.
   */
  advance?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): Expressions<Column>
  /**
   * Whether a row that does not hold is of a period that is over, for an algorithm that has periods. What was
   * used in it is told.
   */
  ended?(row: Expressions<Column>, clock: Expression, params: Expressions<Param>): SQL<boolean>
  /** How much of a row's count is reserved, for an algorithm that keeps it. It is told with what was used. */
  reserved?(row: Expressions<Column>): Expression
  /** The state of a key that has no row. */
  fresh(now: Expression, params: Expressions<Param>): Expressions<Column>
  /** How much an advanced state has left; below 0 in debt. */
  available(state: Expressions<Column>, now: Expression, params: Expressions<Param>): Expression
  /** How much of an advanced state is used; more than the limit in debt. */
  used(state: Expressions<Column>, now: Expression, params: Expressions<Param>): Expression
  /**
   * An advanced state that has `available` left, after `amount` was taken at `now`. `reserved` is by how much
   * more of the count is estimates that wait for their cost; only an algorithm that keeps `settled` reads it.
   */
  consume(
    state: Expressions<Column>,
    now: Expression,
    available: Expression,
    amount: Expression,
    params: Expressions<Param>,
    reserved: Expression,
  ): Expressions<Column>
  /** An advanced state to which `amount` was granted. For an algorithm that has no capacity of its own. */
  grant?(state: Expressions<Column>, now: Expression, amount: Expression): Expressions<Column>
  /** The capacity, for an algorithm whose rows know it. Default: the limit. */
  capacity?(state: Expressions<Column>): Expression
  /** The earliest time at which deleting the row loosens nothing. */
  expiresAt(state: Expressions<Column>, params: Expressions<Param>): Expression
  /**
   * Whether a row's time of expiry is that of this limiter's period, for an algorithm whose periods have a
   * length. `onGrid` rounds a time up to the grid. `paid` is the start of the window that has paid, for a call
   * that settles or gives back; it may be null.
   */
  isOfPeriod?(
    row: Expressions<Column>,
    expires: Expression,
    params: Expressions<Param>,
    onGrid: (time: Expression) => Expression,
    paid?: () => Expression,
  ): SQL<boolean>
  /**
   * Whether a row is of the present period or of the one before, which began at `previousStart`, for an
   * algorithm whose periods differ in length. Default: what `isOfPeriod` says.
   */
  isRecent?(row: Expressions<Column>, params: Expressions<Param>, previousStart: Expression): SQL<boolean>
  /** When an advanced state that has less than the limit is whole again. Default: when it expires. */
  wholeAt?(state: Expressions<Column>, params: Expressions<Param>): Expression
}

/**
 * The same formulas on the state that a statement returned. The same operations in the same order give the
 * same bits.
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
  grant?(state: Numbers<Column>, now: number, amount: number): Numbers<Column>
  capacity?(state: Numbers<Column>): number
  /** About when `wanted` will be available; the search for the exact time begins there. */
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
  /** What was used in it, in units. In debt or after a downgrade it is more than the limit. */
  readonly used: number
  /**
   * Of calendar windows: how much of `used` are estimates that had not been settled. A `commit` or `release`
   * gives nothing back to a period that is over.
   */
  readonly reserved?: number
}

/** The period that holds a time. */
export type PeriodAt = (time: number) => Period

/** The part of an algorithm that works out answers. */
export interface Answering<Column extends StateColumn, Param extends string> {
  /** Also the name under which its statements are kept. */
  readonly name: string
  /** A window counts what was taken, a bucket what is left. */
  readonly kind: 'window' | 'bucket'
  /** Whether it counts whole units only, so that a fractional rate is refused. */
  readonly integersOnly: boolean
  /**
   * By how much a rate may exceed what is available and be granted: fractions are inexact. In units of the
   * limit.
   */
  readonly tolerance: number
  /**
   * What of a count is settled, that is, no estimate that waits for its cost: now, and at most in the window.
   * For an algorithm that keeps both.
   */
  readonly settled?: {
    readonly now: (state: Numbers<Column>) => number
    readonly most: (state: Numbers<Column>) => number
  }
  readonly numbers: NumberFormulas<Column, Param | CommonParam>
}

/**
 * An algorithm: arithmetic and nothing else. It knows no clock, no table and no key.
 *
 * The statements decide and write with the formulas in SQL. Answers are worked out with the formulas on
 * numbers.
 */
export interface Algorithm<Column extends StateColumn, Param extends string>
  extends RowKind,
    Answering<Column, Param> {
  readonly columns: readonly Column[]
  readonly datedBy: Column & RowKind['datedBy']
  /** The parameters that its formulas in SQL use, besides the common ones. */
  readonly params: readonly Param[]
  readonly sql: SqlFormulas<Column, Param | CommonParam>
  /**
   * Whether the parameters that were sent are those of `now`, for an algorithm whose parameters depend on it.
   * If false, nothing is decided, and the statement runs again with the parameters of the time that it
   * returned.
   */
  applies?(now: Expression, params: Expressions<Param | CommonParam>): SQL<boolean>
}

/**
 * An algorithm as everything outside sees it. Its states have only its own columns, which are in `columns`. It
 * reads no others.
 */
export type AnyAlgorithm = Algorithm<StateColumn, string>

/** What the text of a statement depends on. */
export interface Rules {
  readonly algorithm: AnyAlgorithm
  /**
   * If false, a new key has less than the limit. A denied first check then writes its row, so that it begins
   * to fill, and rows never expire: a deleted row would start with less again.
   */
  readonly startsFull: boolean
  /** Whether nothing is taken from a row of another algorithm or period. */
  readonly refusesOther?: boolean
}

export type Params = Numbers<string> & Numbers<CommonParam>

/** A limit, as `Ratelimit.tokenBucket`, `calendarWindow` and the like make it. */
export type Limiter = StoredLimiter | Unlimited

/** What can be told of a limit without the database: for headers, and for pages that list plans. */
export interface Described {
  /** The capacity: `tokens` or `maxTokens`, of `gcra` its `burst`; `Infinity` of `unlimited`. */
  readonly limit: number
  /**
   * Milliseconds: of a fixed or sliding window its length, of a bucket the time from empty to full. Undefined
   * for the calendar, whose periods have different lengths, and for `unlimited`.
   */
  readonly windowMs: number | undefined
}

/** An algorithm with its parameters: a limit that is counted in a row. */
export interface StoredLimiter extends Rules, Described {
  readonly stored: true
  readonly params: Params
  /** Equal for two limiters that are the same limit. */
  readonly signature: string
  /** Equal for two limiters that go on with each other's rows. */
  readonly rows: string
  /** The calendar's period that holds a time: its start and end are parameters too. */
  readonly periodAt?: PeriodAt
}

/** No limit: there is no row, and no statement is run. */
export interface Unlimited extends Described {
  readonly stored: false
  readonly algorithm: Answering<StateColumn, string>
  readonly params: Params
}
