import type { RateLimitTable } from '../../schema/index.ts'
import type { Limiter } from '../algorithms/algorithm.ts'
import { sameLimiter } from '../algorithms/limiter.ts'
import type { Snapshot } from '../algorithms/search.ts'
import type { Connection } from '../database/run.ts'
import type { RatelimitError } from '../errors.ts'

/** A database and the table in it. */
export interface Target extends Connection {
  readonly table: RateLimitTable
}

/** The prefix of the rows, and the clock that they follow. */
export interface Namespace {
  readonly prefix: string
  /** The injected time in Unix milliseconds, or null for the database's. */
  clock(): number | null
}

/**
 * What a call does: take, look or adjust. To adjust is to give back or to go into debt; it is never denied.
 */
export type Purpose = 'take' | 'look' | 'adjust'

/** What a call of this rate asks for, unless it is forced. */
export function purposeOf(rate: number): Purpose {
  if (rate > 0) return 'take'
  return rate < 0 ? 'adjust' : 'look'
}

/** A valid call. */
export interface Request {
  readonly key: string
  readonly rate: number
  readonly limiter: Limiter
  readonly purpose: Purpose
  /**
   * For a refund: the start of the window that paid. Other windows give nothing back. Null if any window may
   * give back.
   */
  readonly paidWindowStart: number | null
}

/** The decision on equal calls: how many were granted, and the state before them. */
export interface Decision extends Snapshot {
  readonly granted: number
}

/** A call that waits for its decision. */
export interface PendingCall extends Request {
  /** `place` is the call's place among the equal calls that were decided together; the first is 0. */
  settle(decision: Decision, place: number): void
  fail(error: RatelimitError): void
}

/** Whether both calls of a key ask for the same. */
export function sameRequest(one: Request, other: Request): boolean {
  return (
    one.rate === other.rate &&
    one.purpose === other.purpose &&
    one.paidWindowStart === other.paidWindowStart &&
    sameLimiter(one.limiter, other.limiter)
  )
}

/** Equal calls of one key that come one after another: they are decided together. */
export class Group {
  readonly request: Request
  readonly calls: PendingCall[] = []

  constructor(request: Request) {
    this.request = request
  }

  settle(decision: Decision): void {
    for (let place = 0; place < this.calls.length; place++) this.calls[place]?.settle(decision, place)
  }

  fail(error: RatelimitError): void {
    for (const call of this.calls) call.fail(error)
  }
}
