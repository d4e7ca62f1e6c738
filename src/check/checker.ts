import type { Limiter } from '../algorithms/algorithm.ts'
import { isUnlimited } from '../algorithms/unlimited.ts'
import { type Database, isTransaction } from '../database/database.ts'
import type { RatelimitError } from '../errors.ts'
import type { Decision, Namespace, PendingCall, Purpose, Request, Target } from '../runtime/call.ts'
import { Coalescer } from '../runtime/coalescer.ts'
import { AloneDecider, decideOne } from '../runtime/decide.ts'
import { Sweeper } from '../runtime/sweep.ts'
import type { Commit } from '../statements/setting.ts'
import { checkOption } from '../validate.ts'
import { answerOf, denying, type LimitResult, type Reporting, unlimitedAnswer } from './answer.ts'
import { DenyCache, forgetDenials, type Sent } from './deny-cache.ts'

/**
 * Makes a result from a decision. `place` is the call's place among the equal calls that were decided
 * together.
 */
export type Finish<T> = (request: Request, decision: Decision, place: number) => T

/** How a checker is made. */
export interface CheckerConfig {
  readonly home: Target
  readonly namespace: Namespace
  readonly limiter: Limiter
  readonly reporting: Reporting
  readonly commit: Commit
  readonly connections: number
  readonly cleanupProbability: number
  readonly maxBlockedKeys: number | undefined
  ensureTables(): Promise<void> | undefined
}

/** Decides valid requests: in a transaction of the caller's, or alone, where they share statements. */
export class Checker {
  readonly home: Target
  readonly namespace: Namespace
  readonly reporting: Reporting
  readonly sweeper: Sweeper
  readonly ensureTables: () => Promise<void> | undefined
  readonly #limiter: Limiter
  readonly #coalescer: Coalescer
  readonly #denials: DenyCache | undefined
  readonly #cleanupProbability: number

  constructor(config: CheckerConfig) {
    const { home, namespace, commit, connections, maxBlockedKeys } = config
    this.home = home
    this.namespace = namespace
    this.reporting = config.reporting
    this.ensureTables = config.ensureTables
    this.sweeper = new Sweeper(home, namespace)
    this.#limiter = config.limiter
    this.#coalescer = new Coalescer(
      new AloneDecider({ target: home, namespace, commit }, config.ensureTables),
      connections,
    )
    this.#denials =
      maxBlockedKeys === undefined ? undefined : new DenyCache(home.table, namespace, maxBlockedKeys)
    this.#cleanupProbability = config.cleanupProbability
  }

  /**
   * The transaction that a call joins: the given one, or the one that the limiter is built on. Undefined if
   * it runs alone.
   */
  joined(tx: Database | undefined): Target | undefined {
    if (tx) {
      checkOption(isTransaction(tx), 'tx must be a transaction of Drizzle.')
      return { ...this.home, db: tx }
    }
    return isTransaction(this.home.db) ? this.home : undefined
  }

  /** The answer to the request. */
  check(request: Request, tx: Database | undefined): Promise<LimitResult> {
    const known = this.#knownAnswer(request, tx)
    return known ? Promise.resolve(known) : this.decide(request, tx, this.#answer)
  }

  /** The answer, and the start of the window that has paid; null if no window has. */
  async charge(
    request: Request,
    tx: Database | undefined,
  ): Promise<{ readonly answer: LimitResult; readonly paidWindowStart: number | null }> {
    const answer = this.#knownAnswer(request, tx)
    if (answer) return { answer, paidWindowStart: null }
    return this.decide(request, tx, (_, decision, place) => ({
      answer: this.#answer(request, decision, place),
      paidWindowStart: request.limiter.algorithm.kind === 'window' ? decision.state.windowStart : null,
    }))
  }

  /** Decides the request and makes the result with `finish`. */
  decide<T>(request: Request, tx: Database | undefined, finish: Finish<T>): Promise<T> {
    const joined = this.joined(tx)
    if (joined) return this.#decideIn(joined, request, finish)
    return new Promise((resolve, reject) => {
      this.#coalescer.add(new PendingCheck(this, request, finish, resolve, reject))
    })
  }

  readonly #answer: Finish<LimitResult> = (request, decision, place) =>
    answerOf(request, decision, place, this.reporting)

  /** The answer, if it needs no database. */
  #knownAnswer(request: Request, tx: Database | undefined): LimitResult | undefined {
    if (isUnlimited(request.limiter)) return unlimitedAnswer(this.clockMs())
    if (!this.#denials || request.purpose !== 'take' || this.joined(tx)) return undefined
    const denied = this.#denials.answer(request)
    return denied && denying(denied, this.reporting)
  }

  async #decideIn<T>(joined: Target, request: Request, finish: Finish<T>): Promise<T> {
    try {
      const asking = { target: joined, namespace: this.namespace, commit: 'as the session' } as const
      return finish(request, await decideOne(asking, { request, calls: ONE }), 0)
    } finally {
      if (this.maySoften(request)) this.forgetDenials(request.key)
    }
  }

  /** Follows up the decision on a call that ran alone. */
  decided(request: Request, decision: Decision, place: number, sent: Sent): void {
    this.#denials?.learn(request, decision, place, sent)
    if (request.rate < 0) this.forgetDenials(request.key)
    this.sweepSometimes(sent.clock)
  }

  failed({ rate, key }: Request): void {
    if (rate < 0) this.forgetDenials(key)
  }

  /**
   * Whether the remembered denial may be too strict after a transaction: another plan may have made the row
   * anew.
   */
  maySoften({ rate, limiter }: Pick<Request, 'rate' | 'limiter'>): boolean {
    return rate < 0 || limiter !== this.#limiter
  }

  forgetDenials(key: string): void {
    forgetDenials(this.home.table, this.namespace.prefix, key)
  }

  sweepSometimes(clock: number | null): void {
    if (Math.random() < this.#cleanupProbability) this.sweeper.sweepBeside(clock)
  }

  /** When a call is sent: by the monotonic clock, and by the injected one. */
  sent(): Sent {
    return { at: this.#denials ? performance.now() : 0, clock: this.namespace.clock() }
  }

  /** The injected time, or this machine's: for answers in which the time decides nothing. */
  clockMs(): number {
    return this.namespace.clock() ?? Date.now()
  }
}

const ONE = { length: 1 }

/** A call that runs alone and waits for its decision. */
class PendingCheck<T> implements PendingCall {
  readonly key: string
  readonly rate: number
  readonly limiter: Limiter
  readonly purpose: Purpose
  readonly paidWindowStart: number | null
  readonly #checker: Checker
  readonly #finish: Finish<T>
  readonly #resolve: (result: T) => void
  readonly #reject: (error: unknown) => void
  readonly #sent: Sent

  constructor(
    checker: Checker,
    request: Request,
    finish: Finish<T>,
    resolve: (result: T) => void,
    reject: (error: unknown) => void,
  ) {
    this.key = request.key
    this.rate = request.rate
    this.limiter = request.limiter
    this.purpose = request.purpose
    this.paidWindowStart = request.paidWindowStart
    this.#checker = checker
    this.#finish = finish
    this.#resolve = resolve
    this.#reject = reject
    this.#sent = checker.sent()
  }

  settle(decision: Decision, place: number): void {
    try {
      this.#checker.decided(this, decision, place, this.#sent)
      this.#resolve(this.#finish(this, decision, place))
    } catch (error) {
      // An error in one answer must not keep the others waiting.
      this.#reject(error)
    }
  }

  fail(error: RatelimitError): void {
    this.#checker.failed(this)
    this.#reject(error)
  }
}
