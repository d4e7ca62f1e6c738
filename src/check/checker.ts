import type { Limiter } from '../algorithms/algorithm.ts'
import type { Snapshot } from '../algorithms/search.ts'
import { type Connection, connectionTo } from '../database/connection.ts'
import { type Database, isTransaction } from '../database/database.ts'
import { retrying } from '../database/retry.ts'
import { runOnce } from '../database/run.ts'
import type { Call, Namespace, Request, Table } from '../runtime/call.ts'
import { Coalescer } from '../runtime/coalescer.ts'
import { AloneDecider, decideOne } from '../runtime/decide.ts'
import { Sweeper } from '../runtime/sweep.ts'
import { removeStatement } from '../statements/remove.ts'
import type { Commit } from '../statements/setting.ts'
import { kept } from '../statements/statements.ts'
import { checkOption } from '../validate.ts'
import type { Outcome, Reporting } from './answer.ts'
import { DenyCache, forgetDenials, type Sent } from './deny-cache.ts'

/** How a checker is made. */
export interface CheckerConfig {
  readonly home: Connection
  readonly table: Table
  readonly namespace: Namespace
  readonly limiter: Limiter
  readonly reporting: Reporting
  readonly commit: Commit
  readonly connections: number
  readonly cleanupProbability: number
  readonly maxBlockedKeys: number | undefined
  /** Waited for before the first statement. */
  readonly ensureTables: (() => Promise<void>) | undefined
}

/** Decides valid calls: in a transaction of the caller's, or alone, where they share statements. */
export class Checker {
  readonly config: CheckerConfig
  readonly sweeper: Sweeper
  readonly #coalescer: Coalescer
  readonly #denials: DenyCache | undefined

  constructor(config: CheckerConfig) {
    const { home, table, namespace, commit, connections, maxBlockedKeys } = config
    this.config = config
    this.sweeper = new Sweeper(home.db, table, namespace)
    const alone = { connection: home, table, namespace, commit }
    this.#coalescer = new Coalescer(new AloneDecider(alone, config.ensureTables), connections)
    this.#denials = maxBlockedKeys ? new DenyCache(table.table, namespace, maxBlockedKeys) : undefined
  }

  /** Decides the call: without the database, in the caller's transaction, or together with others. */
  decide(call: Call, tx: Database | undefined): Promise<Outcome> {
    const joined = this.joined(tx)
    if (!isRequest(call)) return Promise.resolve(unlimitedOutcome(call, this.clockMs()))
    if (joined) return this.#decideIn(joined, call)
    const known = this.#denials?.decide(call)
    return known ? Promise.resolve({ call, decision: known, place: 0 }) : this.#decideAlone(call)
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

  async #decideIn(connection: Connection, call: Request): Promise<Outcome> {
    try {
      const asking = { ...this.config, connection, commit: 'as the session' } as const
      return { call, decision: await decideOne(asking, { request: call, calls: ONE }), place: 0 }
    } finally {
      this.followUpJoined(call)
    }
  }

  #decideAlone(call: Request): Promise<Outcome> {
    const sent: Sent = {
      at: this.#denials ? performance.now() : 0,
      clock: this.config.namespace.clock?.() ?? null,
    }
    return new Promise((resolve, reject) => {
      this.#coalescer.add({
        request: call,
        fulfil: (decision, place) => {
          this.#denials?.learn(call, decision, place, sent)
          if (call.rate < 0) this.forgetDenials(call.key)
          this.sweepSometimes(sent.clock)
          resolve({ call, decision, place })
        },
        fail: (error) => {
          if (call.rate < 0) this.forgetDenials(call.key)
          reject(error)
        },
      })
    })
  }

  /** Makes the key's limit full again. */
  async reset(call: Call, tx: Database | undefined): Promise<void> {
    const { table, namespace } = this.config
    const statement = kept(table.statements, 'remove', () => removeStatement(table.table))
    const values = { prefix: namespace.prefix, key: call.key }
    try {
      await this.#at(tx, ({ db }) => runOnce(db, statement, values))
    } finally {
      this.forgetDenials(call.key)
    }
    // Without a row such a limit starts with less.
    if (!isRequest(call) || call.limiter.startsFull) return
    await this.decide({ ...call, rate: -call.limiter.params.limit, purpose: 'adjust' }, tx)
  }

  /** Deletes all expired rows of the prefix. */
  cleanUp(): Promise<number> {
    return this.#at(undefined, () => this.sweeper.sweepAll())
  }

  /** Runs the work in the transaction that it joins. Alone, it tries again if it lost against another. */
  async #at<T>(tx: Database | undefined, work: (connection: Connection) => Promise<T>): Promise<T> {
    const joined = this.joined(tx)
    if (joined) return work(joined)
    await this.config.ensureTables?.()
    return retrying(() => work(this.config.home))
  }

  /**
   * A transaction may have given something back, or made the row anew under another plan. A remembered denial
   * may then be too strict.
   */
  followUpJoined({ key, rate, limiter }: Call): void {
    if (rate < 0 || limiter !== this.config.limiter) this.forgetDenials(key)
  }

  forgetDenials(key: string): void {
    forgetDenials(this.config.table.table, this.config.namespace.prefix, key)
  }

  sweepSometimes(clock: number | null): void {
    if (Math.random() < this.config.cleanupProbability) this.sweeper.sweepBeside(clock)
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
  const { algorithm, params } = call.limiter
  // An algorithm reads its own columns only.
  const state = algorithm.numbers.fresh(now, params) as Snapshot['state']
  return { call, decision: { now, state, params, granted: 1 }, place: 0 }
}
