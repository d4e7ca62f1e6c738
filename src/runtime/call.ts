import type { RateLimitTable } from '../../schema/index.ts'
import type { EndedPeriod, Limiter, StoredLimiter } from '../algorithms/algorithm.ts'
import { sameLimiter } from '../algorithms/limiter.ts'
import type { Snapshot } from '../algorithms/search.ts'
import type { TableSize } from '../database/run.ts'
import type { RatelimitError } from '../errors.ts'
import type { Statements } from '../statements/statements.ts'

/** A table, its statements, and what is known of its size. */
export interface Table {
  readonly table: RateLimitTable
  readonly statements: Statements
  readonly size: TableSize
}

/** The prefix of the rows, and the clock that they follow. */
export interface Namespace {
  readonly prefix: string
  /** The injected clock in Unix milliseconds. Default: the database's. */
  readonly clock: (() => number) | undefined
  /** Whether calls are refused that meet a row of another algorithm or period. */
  readonly refusesOther?: boolean
}

/**
 * What a call does: take, look, adjust or grant. To adjust is to give back or to go into debt. It is never
 * denied, and neither is a grant.
 */
export type Purpose = 'take' | 'look' | 'adjust' | 'grant'

/** A valid call. */
export interface Call<L extends Limiter = Limiter> {
  readonly key: string
  readonly rate: number
  readonly limiter: L
  readonly purpose: Purpose
  /**
   * For a refund: the start of the window that paid. Other windows give nothing back. Null if any window may
   * give back.
   */
  readonly paidWindowStart: number | null
  /**
   * For a refund: from this time on a bucket gives nothing back, because it has filled since. Null if it gives
   * back at any time.
   */
  readonly refundableUntil: number | null
  /** The least that is worth taking if there is less than `rate`. Null if only all of it is. */
  readonly atLeast: number | null
  /** By how much more is reserved after the call: above 0 for an estimate, below 0 to settle one. */
  readonly reserved: number
  /** Whether this call is refused if it meets a row of another algorithm or period. */
  readonly refusesOther: boolean
}

/** A call that the database decides. */
export type Request = Call<StoredLimiter>

/** The decision on equal calls: how many were granted, and the state before them. */
export interface Decision extends Snapshot {
  readonly granted: number
  /**
   * Whether a look found no row of a limit that does not start full. Such a limit begins to fill with the first
   * check, which makes the row.
   */
  readonly isNew?: boolean
  /** Whether the row is of another algorithm or period, and was therefore left as it is. */
  readonly isOther?: boolean
  /** What was used in the period that the first of the granted calls has ended. */
  readonly ended?: EndedPeriod | undefined
}

/** A request that waits for its decision. */
export interface Pending {
  readonly request: Request
  /** Its caller has given up. */
  isOver: boolean
  /** The statement that it is in. */
  trip: Trip | undefined
  /** It has waited for its own key: for a row that others hold, or behind or beside the key's other calls. */
  isContended: boolean
  /** The database has answered that others hold the row. */
  hold(): void
  /** `place` is its place among the equal requests that were decided together; the first is 0. */
  fulfil(decision: Decision, place: number): void
  fail(error: RatelimitError): void
}

/** Equal requests of one key that came one after another: they are decided together. */
export interface Group {
  readonly request: Request
  readonly calls: Pending[]
}

/** A key's calls in their order. Looks have a line of their own, because they wait for nothing. */
export interface Line {
  readonly id: string
  readonly key: string
  readonly groups: Group[]
  /** How many of its calls are in no statement, and have a caller that waits for it. */
  waiting: number
  /** How many calls were taken back, and are still in its groups. */
  takenBack: number
  /** The statement that its first group is in. */
  trip: Trip | undefined
  /** Whether others were found to hold its row. */
  isHeld: boolean
}

/** A statement that was sent for the first groups of lines. */
export interface Trip {
  readonly lines: readonly Line[]
  /** Whether it may wait for a row that others hold. */
  readonly mayWait: boolean
  /** How many of its calls have no answer and a caller that waits for it. */
  waiting: number
}

/** Decides groups of calls, and fulfils or fails each of their calls. Neither method rejects. */
export interface Decider {
  /**
   * Decides groups of different keys that ask the same of the same limiter. It waits for no row and returns
   * the groups whose rows others hold. For each other group it calls `done` as soon as the calls have their
   * answers.
   */
  decideTogether(groups: readonly Group[], done: (group: Group) => void): Promise<readonly Group[]>
  /** Decides one group, and waits for its row. */
  decideAlone(group: Group): Promise<void>
}

/** Brings calls to the decider. */
export interface Dispatcher {
  /** Has the call decided. It fails the call if too many wait. */
  add(call: Pending): void
  /** Takes back a call, unless it is in a statement; tells whether it is. */
  cancel(call: Pending): boolean
}

/** By how much the call changes what its row says to be reserved; most algorithms' rows do not say it. */
export function reservedIn({ limiter, reserved }: Pick<Call, 'limiter' | 'reserved'>): number {
  return limiter.algorithm.settled ? reserved : 0
}

/** Whether calls of this purpose are never denied. */
export function isSure(purpose: Purpose): boolean {
  return purpose === 'adjust' || purpose === 'grant'
}

/** Whether the call takes its rate even if there is less. */
export function isForced({ rate, purpose }: Call): boolean {
  return rate > 0 && purpose === 'adjust'
}

/** Whether there is more after the call than before. */
export function addsTo({ rate, purpose }: Call): boolean {
  return rate < 0 || purpose === 'grant'
}

/** How much has to be there for the call to be allowed. */
export function neededBy({ rate, atLeast }: Call): number {
  return atLeast ?? rate
}

/**
 * Which calls have to agree in a field: those of a `'line'`, those that share a `'statement'`, or only equal
 * ones, those of a `'group'`. A new field does not compile without an entry. What the entry says is written out
 * in the two functions below, because each call comes there.
 */
export const AGREEMENT: Readonly<Record<keyof Call, 'line' | 'statement' | 'group'>> = {
  key: 'line',
  limiter: 'statement',
  purpose: 'statement',
  refusesOther: 'statement',
  rate: 'group',
  paidWindowStart: 'group',
  refundableUntil: 'group',
  // Those that share a statement either all have it or all lack it.
  atLeast: 'group',
  reserved: 'group',
}

/** Whether one statement can decide both requests. */
export function canShare(one: Request, other: Request): boolean {
  return (
    one.purpose === other.purpose &&
    reservedIn(one) > 0 === reservedIn(other) > 0 &&
    (one.atLeast === null) === (other.atLeast === null) &&
    one.refusesOther === other.refusesOther &&
    sameLimiter(one.limiter, other.limiter)
  )
}

/** Whether both requests of a key ask for the same. */
export function sameRequest(one: Request, other: Request): boolean {
  return (
    one.rate === other.rate &&
    one.atLeast === other.atLeast &&
    one.paidWindowStart === other.paidWindowStart &&
    one.refundableUntil === other.refundableUntil &&
    reservedIn(one) === reservedIn(other) &&
    canShare(one, other)
  )
}
