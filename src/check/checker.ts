import { freshState } from '../algorithms/limiter.ts'
import { type Connection, connectionTo } from '../database/connection.ts'
import { type Database, isTransaction } from '../database/database.ts'
import { channels } from '../diagnostics.ts'
import type { RatelimitError } from '../errors.ts'
import { onFirstUse } from '../on-first-use.ts'
import { addsTo, type Call, type Dispatcher, type Pending, type Request } from '../runtime/call.ts'
import { Coalescer } from '../runtime/coalescer.ts'
import { AloneDecider } from '../runtime/decide.ts'
import { decideOne } from '../runtime/decide-one.ts'
import { Direct } from '../runtime/direct.ts'
import { Outage } from '../runtime/outage.ts'
import { Room } from '../runtime/room.ts'
import { checkOption } from '../validate.ts'
import { answerOf, type Outcome, paymentOf, withReturned } from './answer.ts'
import { type Bounds, timedOut, watchBounds } from './bounds.ts'
import type { CheckerConfig } from './checker-config.ts'
import type { Answered, Degrading } from './degrading.ts'
import { type Denials, forgetDenials, type Sent } from './denials.ts'
import { refusalOf } from './refusal.ts'
import { Sweeps } from './sweeps.ts'
import type { Watched } from './watch.ts'

const watching = /* @__PURE__ */ onFirstUse(() => import('./watch.ts'))

/** A valid call of a limiter. */
export interface LimiterCall {
  readonly checker: Checker
  readonly call: Call
}

/** Decides valid calls: in a transaction of the caller's, or alone, where they may share statements. */
export class Checker {
  readonly config: CheckerConfig
  /** For calls that do not go through the queue. */
  readonly room: Room
  /** Since the database failed last, if it has not answered since. */
  outage: Outage | undefined
  readonly #dispatcher: Dispatcher
  /** Loaded before the first call that it could answer. */
  #denials: Denials | undefined
  readonly #sweeps: Sweeps

  constructor(config: CheckerConfig) {
    const { home, table, namespace, commit, connections } = config
    this.config = config
    this.room = new Room(connections === undefined)
    this.#sweeps = new Sweeps(config)
    const decider = new AloneDecider({ connection: home, table, namespace, commit }, config.ensureTables)
    this.#dispatcher = connections ? new Coalescer(decider, connections) : new Direct(decider, this.room)
  }

  /** Answers the call, and tells what was paid for it. By `onError` it also answers during an outage. */
  answer(call: Call, tx: Database | undefined): Promise<Answered> {
    if (!channels.decision?.hasSubscribers && !channels.error?.hasSubscribers) return this.#answer(call, tx)
    return this.#answerWatched(call, tx)
  }

  async #answerWatched(call: Call, tx: Database | undefined): Promise<Answered> {
    const { watch } = await watching()
    const answered = (async () => this.#answer(call, tx))()
    return watch([this.watched(call, tx)], answered, (each) => [each])
  }

  /** The call, as those who watch see it. */
  watched(call: Call, tx: Database | undefined): Watched {
    const { home, namespace } = this.config
    return { prefix: namespace.prefix, call, joined: tx !== undefined || home.isTransaction }
  }

  #answer(call: Call, tx: Database | undefined): Promise<Answered> {
    const { reporting, degrading } = this.config
    const answered = this.decide(call, tx).then((outcome) => ({
      answer: withReturned(answerOf(outcome, reporting), outcome),
      paid: paymentOf(outcome),
    }))
    if (degrading.onError === 'throw' || this.joined(tx)) return answered
    return answered.catch((error) => this.degrade(error, call))
  }

  /**
   * Answers a call that failed outside of a transaction by `onError`, or throws its error. `told` has the
   * functions that know of it.
   */
  async degrade(
    error: unknown,
    call: Call,
    told: Set<Degrading['onDegraded']> = new Set(),
  ): Promise<Answered> {
    const { degraded } = await import('./degrading.ts')
    return degraded(error, call, this.config, told)
  }

  /** Decides the call: without the database, in the caller's transaction, or together with others. */
  decide(
    call: Call,
    tx: Database | undefined,
    bounds: Bounds | undefined = this.config.bounds,
  ): Promise<Outcome> {
    const joined = this.joined(tx)
    if (!isRequest(call)) return Promise.resolve(unlimitedOutcome(call, this.clockMs()))
    if (joined) return this.#decideIn(joined, call)
    const { maxBlockedKeys } = this.config
    if (maxBlockedKeys && !this.#denials) {
      return this.#loadDenials(maxBlockedKeys).then(() => {
        bounds?.signal?.throwIfAborted()
        return this.decide(call, tx, bounds)
      })
    }
    const known = this.#denials?.decide(call)
    return known ? Promise.resolve({ call, decision: known, place: 0 }) : this.#decideAlone(call, bounds)
  }

  /** Each call loads them by itself, because in Workers it cannot wait for the promise of another. */
  async #loadDenials(maxBlockedKeys: number): Promise<void> {
    const { DenyCache } = await import('./deny-cache.ts')
    const { table, namespace } = this.config
    this.#denials ??= new DenyCache(table.table, namespace, maxBlockedKeys)
  }

  /**
   * The transaction that a call joins: the given one, or the one that the limiter is built on. Undefined if
   * it runs alone.
   */
  joined(tx: Database | undefined): Connection | undefined {
    const { home } = this.config
    if (!tx) return home.isTransaction ? home : undefined
    checkOption(isTransaction(tx), 'tx must be a transaction of Drizzle.')
    return connectionTo(tx, home.keeping)
  }

  /** Where a call runs: in the transaction that it joins, or alone. */
  where(tx: Database | undefined): Connection {
    return this.joined(tx) ?? this.config.home
  }

  async #decideIn(connection: Connection, call: Request): Promise<Outcome> {
    try {
      const asking = { ...this.config, connection, commit: 'as the session' } as const
      const decision = await decideOne(asking, { request: call, calls: ONE })
      const refusal = refusalOf(call, decision, 0)
      if (refusal) throw refusal
      return { call, decision, place: 0 }
    } finally {
      this.followUpJoined(call)
    }
  }

  #decideAlone(call: Request, bounds: Bounds | undefined): Promise<Outcome> {
    const refusal = this.outage?.refusal()
    if (refusal) return Promise.reject(refusal)
    const sent: Sent = {
      at: this.#denials ? performance.now() : 0,
      clock: this.config.namespace.clock?.() ?? null,
    }
    const decided = new Promise<Outcome>((resolve, reject) => {
      let stopWatching: (() => void) | undefined
      let whenSettled = () => {}
      const pending: Pending = {
        request: call,
        isOver: false,
        trip: undefined,
        isContended: false,
        hold: () => {
          pending.isContended = true
          this.outage = undefined
        },
        fulfil: (decision, place) => {
          stopWatching?.()
          this.outage = undefined
          const refusal = refusalOf(call, decision, place)
          if (refusal) return pending.fail(refusal)
          this.#denials?.learn(call, decision, place, sent)
          if (addsTo(call)) this.forgetDenials(call.key)
          const outcome = { call, decision, place }
          if (pending.isOver && bounds?.giveBack) bounds.giveBack(outcome).then(whenSettled)
          resolve(outcome)
        },
        fail: (error) => {
          stopWatching?.()
          this.learnOf(error, pending.trip)
          if (addsTo(call)) this.forgetDenials(call.key)
          whenSettled()
          reject(error)
        },
      }
      if (bounds) {
        stopWatching = watchBounds(bounds, (why) => {
          const wasSent = this.#dispatcher.cancel(pending)
          if (wasSent && bounds.giveBack) {
            const settled = new Promise<void>((resolve) => {
              whenSettled = resolve
            })
            this.config.goOn(settled)
          }
          if (why !== 'timeout') return reject(why.aborted)
          const error = timedOut(wasSent && call.purpose !== 'look', pending.isContended)
          const { trip } = pending
          if (bounds.onWaitOver) bounds.onWaitOver()
          // A row that somebody holds says nothing about the database, nor do the key's own calls.
          else if (trip && !trip.mayWait) this.addFailure(error, trip)
          reject(error)
        })
      }
      // It may fail at once.
      this.#dispatcher.add(pending)
    })
    this.sweepAfter(decided, sent.clock)
    return decided
  }

  /** Learns of the error of a statement. */
  learnOf(error: RatelimitError, statement: object = error): void {
    if (Outage.isOne(error)) this.addFailure(error, statement)
    else if (error.sqlState !== undefined) {
      // The database has refused the call, so it is there.
      this.outage = undefined
    }
  }

  /** The statement has failed, or has no answer in time. */
  addFailure(error: RatelimitError, statement: object = error): void {
    this.outage ??= new Outage()
    this.outage.add(error, statement)
  }

  /**
   * A transaction may have given something back, or made the row anew under another plan. A remembered denial
   * may then be too strict.
   */
  followUpJoined(call: Call): void {
    if (addsTo(call) || call.limiter !== this.config.limiter) this.forgetDenials(call.key)
  }

  forgetDenials(key: string): void {
    forgetDenials(this.config.table.table, this.config.namespace.prefix, key)
  }

  /** After some calls it sweeps when they are decided. `clock` is their injected time. */
  sweepAfter(decided: Promise<unknown>, clock: number | null): void {
    if (Math.random() >= this.config.cleanupProbability) return
    // Another request's statement may decide this call, and `waitUntil` has to be called from its own request.
    decided.then(
      () => this.#sweeps.begin(clock),
      () => {},
    )
  }

  /** The injected time, or this machine's: for answers in which the time decides nothing. */
  clockMs(): number {
    return this.config.namespace.clock?.() ?? Date.now()
  }
}

const ONE = { length: 1 }

/** Whether the database has to decide the call. */
export function isRequest(call: Call): call is Request {
  return call.limiter.stored
}

/** A call without a limit is allowed, and nothing is used. */
export function unlimitedOutcome(call: Call, now: number): Outcome {
  const { params } = call.limiter
  const state = freshState(call.limiter, now, params)
  return { call, decision: { now, state, params, granted: 1 }, place: 0 }
}
