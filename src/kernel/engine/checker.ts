import { type Answered, AnswerTo } from '../answers/answer.ts'
import { isRequest, type Outcome, unlimitedOutcome } from '../answers/outcome.ts'
import { type Connection, connectionTo } from '../database/connection.ts'
import { uncharged } from '../database/database-error.ts'
import { Coalescer } from '../queue/coalescer.ts'
import { AloneDecider, decideOne } from '../queue/decide.ts'
import { Direct } from '../queue/direct.ts'
import type { Dispatcher } from '../queue/queue.ts'
import { Room, type WaitingCalls } from '../queue/waits.ts'
import { addsTo, type Call, type Request } from '../store/call.ts'
import type { Target } from '../store/store.ts'
import { refusalAt } from './admission.ts'
import { type At, type Bounds, isCallTime } from './bounds.ts'
import { Circuit } from './circuit.ts'
import { forgetEverywhere, type Memory, register } from './denials.ts'
import type { DenyCache } from './deny-cache.ts'
import type { InAdvance, Parts } from './parts.ts'
import { refusalOf } from './refusal.ts'
import { type Sender, SentCall } from './sent-call.ts'

/** A valid call of a limiter. */
export interface LimiterCall<C extends Call = Call> {
  readonly checker: Checker
  readonly call: C
}

/** Decides valid calls: in a caller's transaction, or alone, where calls may share statements. */
export class Checker implements Memory, Parts {
  readonly rows: Target
  readonly terms: Parts['terms']
  readonly alone: Parts['alone']
  readonly circuit: Circuit = new Circuit()
  /** For calls outside of the key queues. */
  readonly room: Room
  /** The calls in the key queues, and those that wait for units that were taken in advance. */
  readonly #waiting: WaitingCalls = { calls: 0 }
  readonly #sender: Sender
  readonly #answered: (outcome: Outcome) => Answered
  readonly #dispatcher: Dispatcher
  /** Loaded before the first call that could use it. */
  #denials: DenyCache | undefined
  /** Answers calls from units that were taken in advance. */
  readonly inAdvance: InAdvance | undefined

  constructor({ rows, terms, alone }: Parts) {
    const { bounds, connections, goOn, inAdvance, watch } = alone
    this.rows = rows
    this.terms = terms
    this.alone = alone
    this.#answered = (outcome) => new AnswerTo(outcome, terms.reporting)
    this.room = new Room(connections === undefined)
    const decider = new AloneDecider(rows, watch)
    const forgetAfter = (request: Request) => {
      if (addsTo(request)) forgetEverywhere(rows, request.key, 'refund')
    }
    this.#sender = {
      ...{ circuit: this.circuit, goOn, dispatcher: () => this.#dispatcher },
      decided: ({ call, decision, place }, sent) => {
        const refusal = refusalOf(call, decision, place)
        if (refusal) return refusal
        if (sent) this.#denials?.learn(call, decision, place, sent)
        forgetAfter(call)
        return undefined
      },
      failed: forgetAfter,
    }
    const dispatcher = connections
      ? new Coalescer(decider, connections, this.#waiting)
      : new Direct(decider, this.room)
    this.inAdvance = inAdvance?.({
      ...{ goOn, dispatcher, clock: rows.namespace.clock, waiting: this.#waiting },
      giveBack: async (refund) => {
        try {
          await this.#decideAlone(refund, bounds, () => {})
        } catch {}
      },
    })
    this.#dispatcher = this.inAdvance ?? dispatcher
    if (this.inAdvance) register(this)
  }

  /**
   * Returns the answer and the payment of the call. An answer from memory is no promise, because waiting for
   * one takes longer than the answer.
   */
  answer(call: Call, tx: At): Answered | Promise<Answered> {
    return this.#decide(call, tx, this.boundsOf(tx), this.#answered)
  }

  /** Decides the call: without the database, in the caller's transaction, or together with others. */
  decide(call: Call, tx: At, bounds: Bounds | undefined = this.boundsOf(tx)): Promise<Outcome> {
    return Promise.resolve(this.#decide(call, tx, bounds, (outcome) => outcome))
  }

  #decide<T>(
    call: Call,
    tx: At,
    bounds: Bounds | undefined,
    resultOf: (outcome: Outcome) => T,
  ): T | Promise<T> {
    this.rows.namespace.onUse?.()
    const joined = this.joined(tx)
    if (!isRequest(call)) return resultOf(unlimitedOutcome(call, this.clockMs()))
    if (joined) return this.#decideIn(joined, call).then(resultOf)
    const { maxBlockedKeys } = this.alone
    if (maxBlockedKeys && !this.#denials) {
      return this.#remember(maxBlockedKeys).then(() => {
        bounds?.signal?.throwIfAborted()
        return this.#decide(call, tx, bounds, resultOf)
      })
    }
    const known = this.inAdvance?.decide(call) ?? this.#denials?.decide(call)
    return known ? resultOf({ call, decision: known, place: 0 }) : this.#decideAlone(call, bounds, resultOf)
  }

  /** Each call loads it itself, because in Workers a call cannot wait for the promise of another. */
  async #remember(maxBlockedKeys: number): Promise<void> {
    const { DenyCache } = await import('./deny-cache.ts')
    this.#denials ??= new DenyCache(this.rows, maxBlockedKeys)
  }

  /**
   * The transaction that a call joins: the given one, or the one that the limiter was created with. Undefined
   * if the call runs alone.
   */
  joined(tx: At): Connection | undefined {
    const home = this.rows.connection
    if (!tx || isCallTime(tx)) return home.isTransaction ? home : undefined
    return connectionTo(tx, home.keeping)
  }

  /** The limits on the time of a statement outside of a transaction. */
  boundsOf(tx: At): Bounds | undefined {
    return isCallTime(tx) ? { time: tx } : this.alone.bounds
  }

  /** Where a call runs: in the transaction that it joins, or alone. */
  where(tx: At): Connection {
    return this.joined(tx) ?? this.rows.connection
  }

  async #decideIn(connection: Connection, call: Request): Promise<Outcome> {
    try {
      const target = { ...this.rows, connection, commit: 'as the session' } as const
      const decided = decideOne(target, { request: call, calls: ONE })
      const decision = await (call.purpose === 'look' ? uncharged(decided) : decided)
      const refusal = refusalOf(call, decision, 0)
      if (refusal) throw refusal
      return { call, decision, place: 0 }
    } finally {
      this.followUpJoined(call)
    }
  }

  #decideAlone<T>(call: Request, bounds: Bounds | undefined, resultOf: (outcome: Outcome) => T): Promise<T> {
    const refusal = refusalAt(this.circuit, bounds)
    if (refusal) return Promise.reject(refusal)
    const clock = this.rows.namespace.clock?.() ?? null
    const sent = this.#denials?.begin(clock)
    const { result } = new SentCall(this.#sender, call, sent, bounds, resultOf)
    this.alone.sweeps.after(result, clock)
    return result
  }

  /**
   * Forgets a remembered denial that may now be too strict, because a transaction has given something back, or
   * replaced a block or the row of another plan.
   */
  followUpJoined(call: Call): void {
    if (!addsTo(call) && call.limiter === this.terms.limiter) return
    forgetEverywhere(this.rows, call.key, 'refund')
    if (addsTo(call)) this.inAdvance?.setAside(call.key)
  }

  forget(key: string, after: 'refund' | 'reset'): void {
    if (after === 'reset') this.inAdvance?.forget(key)
  }

  /** The key as it is stored: with `hashKeys`, its hash. */
  async stored(key: string): Promise<string> {
    const { hash } = this.terms
    return hash ? hash(key) : key
  }

  /** The injected time or this machine's, for answers that do not depend on the exact time. */
  clockMs(): number {
    return this.rows.namespace.clock?.() ?? Date.now()
  }
}

const ONE = { length: 1 }
