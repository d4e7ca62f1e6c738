import type { Row } from '../database/run.ts'
import type { EndedPeriod, Limiter, StoredLimiter } from '../limits/algorithm.ts'
import { sameLimiter } from '../limits/limiter.ts'
import type { Snapshot } from '../limits/search.ts'
import type { RowAction } from '../sql/decided.ts'
import type { Entry, Recorded, RecordedStatement, WriteEntries } from './entry.ts'

/** The prefix of the rows and the clock by which they are read. */
export interface Namespace {
  readonly prefix: string
  /** The injected clock in Unix milliseconds. Default: the database's. */
  readonly clock: (() => number) | undefined
  /** Whether a call is refused if it meets a row of another algorithm or period. */
  readonly refusesOther?: boolean
  /** Whether most keys are new, as ids are, so that a list inserts their rows by its own statement. */
  readonly isUsuallyNew?: boolean
  /** Whether a list locks its rows after those of other prefixes. */
  readonly comesLast?: boolean
  /** Hands out what statements charge. Undefined if nobody gets it. */
  readonly ledger?: Ledger | undefined
  /** Called at each use. It watches for other limiters of the prefix. */
  readonly onUse?: (() => void) | undefined
}

/**
 * What a call asks for: `'look'`, or an action on its row. A take that charges an estimate has the purpose
 * `'take'` too, and its statement runs as `'reserve'`.
 */
export type Purpose = 'look' | Exclude<RowAction, 'reserve'>

export interface Call<L extends Limiter = Limiter> {
  readonly key: string
  readonly rate: number
  readonly limiter: L
  readonly purpose: Purpose
  /** For a refund: the start of the window that paid. Only that window gives back. Null means any window. */
  readonly paidWindowStart: number | null
  /**
   * For a refund: the time at which the bucket is full again by itself. For a cancel: the start of the call.
   * From then on nothing is given back. Null if there is no such time.
   */
  readonly refundableUntil: number | null
  /** For a call that is scheduled: how many milliseconds it may have to wait. Null for others. */
  readonly within: number | null
  /** The least that is worth granting. Null if the call needs the whole rate. */
  readonly atLeast: number | null
  /** The change of the reserved amount: above 0 for an estimate, below 0 to settle one. */
  readonly reserved: number
  /** Whether the call is refused if it meets a row of another algorithm or period. */
  readonly refusesOther: boolean
  /** For a refund to a key with several rows: the row that has paid. */
  readonly payer?: string | undefined
}

/** A call that the database decides. */
export type Request = Call<StoredLimiter>

/** A request and the number of calls that make it. */
export interface Asked {
  readonly request: Request
  readonly calls: { readonly length: number }
}

/** The decision on each request; undefined if the statement found no row that it could lock. */
export type Answers = readonly (Decision | undefined)[]

/** Hands out the entries of statements, in their transactions. */
export interface Ledger {
  readonly write: WriteEntries
  /** The entry of a granted call. None if it has changed no count. */
  recorded(granted: GrantedCall): readonly Recorded[]
  /** Runs a statement, and hands out its entries, which may be those of several ledgers. */
  record<T>(recording: RecordedStatement<T>): Promise<T>
  /** Runs a statement of calls of the limiter, and hands out the entries of those that it has granted. */
  recordCalls(
    asked: readonly Asked[],
    recording: Pick<RecordedStatement<Answers>, 'connection' | 'isBrief' | 'run'>,
  ): Promise<Answers>
}

/** A call that was granted, and what its entry says next to the change. */
export interface GrantedCall {
  readonly call: Call
  readonly decision: Decision
  /** Its place among the equal calls that were decided together. */
  readonly place: number
  readonly id?: string | undefined
  readonly kind?: Entry['kind'] | undefined
}

/** The decision on equal calls: how many are granted, and the state before them. */
export interface Decision extends Snapshot {
  readonly granted: number
  /**
   * Whether a look found no row, for a limit that does not start full. The first check makes the row, and the
   * limit begins to fill.
   */
  readonly isNew?: boolean
  /** Whether the row is of another algorithm or period. It was not changed. */
  readonly isOther?: boolean
  /** The period that the first granted call has ended. */
  readonly ended?: EndedPeriod | undefined
  /** What the row pays of the rate of its group, if the list is done. Undefined if it is in no group. */
  readonly share?: number | undefined
  /** Of a key with several rows: those that have paid, or that a look has read. */
  readonly rows?: readonly Row[]
  /** If units that were taken in advance have answered the call: its answer. */
  readonly prefetched?: AnswerInAdvance
}

export interface AnswerInAdvance {
  readonly success: true
  readonly limit: number
  readonly remaining: number
  readonly reset: number
  readonly retryAfter: 0
  readonly start?: number
  readonly granted?: number
  readonly prefetched: true
}

/** By how much the call changes the reserved amount of its row. Always 0 if the algorithm does not keep one. */
export function reservedIn({ limiter, reserved }: Pick<Call, 'limiter' | 'reserved'>): number {
  return limiter.algorithm.settled ? reserved : 0
}

/**
 * The limiter with the algorithm of calls with this purpose. Those that give units back, or get starts, have to
 * know until when starts are promised.
 */
export function limiterFor(limiter: StoredLimiter, purpose: Purpose): StoredLimiter {
  const { promising } = limiter.algorithm
  const knows = purpose === 'adjust' || typeof purpose === 'object'
  return promising && knows ? { ...limiter, algorithm: promising } : limiter
}

export function isNeverDenied(purpose: Purpose): boolean {
  return purpose === 'adjust' || purpose === 'add' || purpose === 'block'
}

/** Whether the call may leave more than there was before. A block may replace a longer one. */
export function addsTo({ rate, purpose }: Call): boolean {
  return rate < 0 || purpose === 'add' || purpose === 'block'
}

/** How much has to be available for the call to be allowed. */
export function neededBy({ rate, atLeast }: Call): number {
  return atLeast ?? rate
}

/**
 * Names what requests have in common that one statement can decide. Their limits may have other numbers. A test
 * lists it all.
 */
export function kindOf(request: Request): string {
  const { purpose, refusesOther, limiter } = request
  const { algorithm, startsFull } = limiter
  const isEstimate = reservedIn(request) > 0
  // This runs for each check. Most kinds have a name that is a text already.
  if (purpose === 'take' && startsFull && !isEstimate && !refusesOther) return algorithm.name
  const does = typeof purpose === 'object' ? purpose.name : purpose
  return `${does} ${isEstimate} ${refusesOther} ${startsFull} ${algorithm.name}`
}

/** Whether two requests for one key are equal, so that they can be decided together. */
export function sameRequest(one: Request, other: Request): boolean {
  return (
    one.purpose === other.purpose &&
    !(typeof one.purpose === 'object' && one.purpose.isAlone) &&
    // A forced charge changes what the next one gets, if it starts a block.
    !(one.purpose === 'adjust' && one.rate > 0 && one.limiter.algorithm.seesEachCall) &&
    one.rate === other.rate &&
    one.atLeast === other.atLeast &&
    one.paidWindowStart === other.paidWindowStart &&
    one.refundableUntil === other.refundableUntil &&
    one.within === other.within &&
    one.payer === other.payer &&
    reservedIn(one) === reservedIn(other) &&
    one.refusesOther === other.refusesOther &&
    sameLimiter(one.limiter, other.limiter)
  )
}

/** A call that only looks at a row, and the base of calls that change it. */
export function lookAt(key: string, limiter: StoredLimiter): Request {
  return requestFor(key, limiter, 'look', 0)
}

/** A call of a rate. To spread a look into it would take V8 many times as long. */
export function requestFor<L extends Limiter = StoredLimiter>(
  key: string,
  limiter: L,
  purpose: Purpose,
  rate: number,
  paidWindowStart: number | null = null,
  payer?: string,
  atLeast: number | null = null,
): Call<L> {
  return {
    key,
    limiter,
    rate,
    purpose,
    paidWindowStart,
    refundableUntil: null,
    within: null,
    atLeast,
    reserved: 0,
    refusesOther: false,
    payer,
  }
}
