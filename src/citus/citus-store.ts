import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { groupBy } from '../kernel/base/arrays.ts'
import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { mustHave, onlyRow } from '../kernel/database/rows.ts'
import { execute, type Row, runKept, runOnce } from '../kernel/database/run.ts'
import { kept, type Statement, type Statements, type Value } from '../kernel/database/statement.ts'
import { inTransaction } from '../kernel/database/transaction.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { decideOne } from '../kernel/queue/decide.ts'
import { textArray } from '../kernel/sql/calls.ts'
import { askToLook, askToTake } from '../kernel/store/ask.ts'
import type { Answers, Asked, Request } from '../kernel/store/call.ts'
import { removeRow } from '../kernel/store/fill.ts'
import type { Steps, Store, Target } from '../kernel/store/store.ts'
import { readShards, type Shards } from './shards.ts'
import {
  expiredStatement,
  insertEmptyStatement,
  lockFreeStatement,
  lookShardsStatement,
  removeEmptyShardStatement,
  removeWindows,
  sweepShardStatement,
  takeShardStatement,
} from './statements.ts'

/** The name of the plan. The workers plan each time. */
const ANY_SIZE = 'any size'

/** Citus refuses a statement that locks rows on several workers. */
const FEATURE_NOT_SUPPORTED = '0A000'

/** The store of a table that Citus has distributed by key. */
export class CitusStore implements Store, Steps {
  readonly steps: Steps = this
  readonly isShown = true
  readonly removeWindows: Steps['removeWindows'] = removeWindows
  readonly #table: RateLimitTable
  readonly #statements: Statements
  #shards: Shards | undefined

  constructor(table: RateLimitTable, statements: Statements) {
    this.#table = table
    this.#statements = statements
  }

  take(target: Target, asked: readonly Asked[], waits: boolean): Promise<Answers> {
    return askToTake(target, asked, waits, takeShardStatement)
  }

  look(target: Target, asked: readonly Asked[]): Promise<Answers> {
    return askToLook(target, asked, lookShardsStatement)
  }

  /** Reads where the shards are, unless that is known. */
  async load(db: Database): Promise<Shards> {
    this.#shards ??= await readShards(db, this.#table)
    return this.#shards
  }

  forget(error: unknown): boolean {
    const isRefused = error instanceof RatelimitError && error.sqlState === FEATURE_NOT_SUPPORTED
    if (isRefused) this.#shards = undefined
    return isRefused
  }

  shardOf(key: string): number {
    return this.#shards?.of(key) ?? 0
  }

  split<T>(values: readonly T[], keyOf: (value: T) => string): readonly (readonly T[])[] {
    return groupBy(values, (value) => this.shardOf(keyOf(value)))
  }

  /**
   * Citus works out an insert on the coordinator, so this inserts rows without a state. The take then reads the
   * clock of their own server. Rows that it does not write are removed.
   */
  async make(target: Target, asked: readonly Asked[], waits: boolean): Promise<Answers> {
    const { connection, namespace } = target
    const { prefix } = namespace
    const keys = asked.map(({ request }) => request.key)
    if (waits) await this.#insert(connection, prefix, keys)
    else await this.#insertAtOnce(connection, prefix, keys)
    const answers = await this.take(target, asked, waits)
    const unwritten = asked.flatMap(({ request: { key, limiter } }, place) => {
      const answer = answers[place]
      return answer && limiter.startsFull && answer.granted <= 0 ? [key] : []
    })
    if (unwritten.length === 0) return answers
    const removed = this.removeEmpty(connection, prefix, unwritten)
    // The answers stand, and a sweep removes the rows. In a caller's transaction, a failure has aborted it.
    await (connection.isTransaction ? removed : removed.catch(() => {}))
    return answers
  }

  /** Inserts rows without a state for keys of one shard, where they are missing. Returns how many were. */
  async #insert(connection: Connection, prefix: string, keys: readonly string[]): Promise<number> {
    // Few texts are prepared: the last key fills the list up to a power of two.
    const size = 2 ** Math.ceil(Math.log2(keys.length))
    const values: Record<string, Value> = { prefix }
    for (let place = 0; place < size; place++) {
      values[`${place}.key`] = keys[Math.min(place, keys.length - 1)] as string
    }
    const build = () => insertEmptyStatement(this.#table, size, false)
    return (await this.#run(connection, `insert ${size}`, build, values)).length
  }

  /**
   * The same in a transaction of its own. If another transaction is inserting one of the rows, it waits for
   * three milliseconds and then fails with 55P03. Only `set local` reaches the worker.
   */
  #insertAtOnce(connection: Connection, prefix: string, keys: readonly string[]): Promise<number> {
    return inTransaction(connection, async (own) => {
      await execute(own.db, sql`set local citus.propagate_set_commands to 'local'`)
      await execute(own.db, sql`set local lock_timeout to '3ms'`)
      return this.#insert(own, prefix, keys)
    })
  }

  async insertForList(connection: Connection, prefix: string, key: string, waits: boolean): Promise<number> {
    if (!waits) return this.#insertAtOnce(connection, prefix, [key])
    const build = () => insertEmptyStatement(this.#table, 1, true)
    return (await this.#run(connection, 'lock', build, { prefix, '0.key': key })).length
  }

  /** Tells nothing of how far the call has come, which may have charged other keys before. */
  async removeEmpty(
    { sending: _, ...connection }: Connection,
    prefix: string,
    keys: readonly string[],
  ): Promise<void> {
    const build = () => removeEmptyShardStatement(this.#table)
    await this.#run(connection, 'remove empty', build, { prefix, key: textArray(keys) })
  }

  async lockFree(db: Database, prefix: string, keys: readonly string[]): Promise<ReadonlySet<string>> {
    await this.load(db)
    const statement = kept(this.#statements, 'lock free', () => lockFreeStatement(this.#table))
    const free = new Set<string>()
    for (const own of this.split(keys, (key) => key)) {
      const rows = await runOnce({ db }, statement, { prefix, key: textArray(own) })
      for (const row of rows) free.add(String(mustHave(row['key'])))
    }
    return free
  }

  async placeOf(db: Database, key: string): Promise<string> {
    const shards = await this.load(db)
    return `${shards.of(key)} of ${shards.group}`
  }

  /**
   * Citus works out the time of an insert on the coordinator, so the row is removed, and then made by a refund,
   * whose time is that of the row's own server.
   */
  async fill(target: Target, request: Request): Promise<void> {
    const { connection } = target
    const refund = { ...request, rate: -request.limiter.params.limit, purpose: 'adjust' } as const
    const work = async (own: Connection) => {
      const asks = { ...target, connection: own }
      await removeRow(asks, request.key)
      await decideOne(asks, { request: refund, calls: { length: 1 } })
    }
    await (connection.isTransaction ? work(connection) : inTransaction(connection, work))
  }

  async sweep(db: Database, prefix: string, clock: number | null, keepEnded: boolean): Promise<number> {
    const sweep = () => this.#sweep(db, prefix, clock, keepEnded)
    return sweep().catch((error) => {
      if (!this.forget(error)) throw error
      return sweep()
    })
  }

  async #sweep(db: Database, prefix: string, clock: number | null, keepEnded: boolean): Promise<number> {
    await this.load(db)
    const find = kept(this.#statements, `expired ${keepEnded}`, () =>
      expiredStatement(this.#table, keepEnded),
    )
    const sweep = kept(this.#statements, `sweep ${keepEnded}`, () =>
      sweepShardStatement(this.#table, keepEnded),
    )
    const expired = (await runOnce({ db }, find, { prefix, clock })).map((row) =>
      String(mustHave(row['key'])),
    )
    let deleted = 0
    for (const keys of this.split(expired, (key) => key)) {
      const rows = await runOnce({ db }, sweep, { prefix, clock, key: textArray(keys) })
      deleted += Number(mustHave(onlyRow(rows)?.['deleted']))
    }
    return deleted
  }

  #run(
    connection: Connection,
    name: string,
    build: () => Statement,
    values: Record<string, Value>,
  ): Promise<readonly Row[]> {
    return runKept(connection, kept(this.#statements, name, build), ANY_SIZE, values)
  }
}
