import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { execute, type Row, runKept, runOnce } from '../database/run.ts'
import type { Statement, Value } from '../database/statement.ts'
import { inTransaction } from '../database/transaction.ts'
import { RatelimitError } from '../errors.ts'
import { textArray } from '../statements/calls.ts'
import {
  expiredStatement,
  insertEmptyStatement,
  lockFreeStatement,
  lookShardsStatement,
  removeEmptyShardStatement,
  sweepShardStatement,
  takeShardStatement,
} from '../statements/distributed.ts'
import { kept, type Statements, statementsOf } from '../statements/statements.ts'
import { readShards, type Shards } from './shards.ts'

/** The name of the plan. The workers plan each time. */
const ANY_SIZE = 'any size'

const known = new WeakMap<RateLimitTable, DistributedTable>()

/** What a table needs that Citus has distributed by key. Limiters of one table share it. */
export function distributedTable(table: RateLimitTable): DistributedTable {
  const found = known.get(table) ?? new DistributedTable(table)
  known.set(table, found)
  return found
}

/** A request for a row. */
interface Asked {
  readonly request: { readonly key: string; readonly limiter: { readonly startsFull: boolean } }
}

/** Citus refuses a statement that locks rows on several workers. */
const FEATURE_NOT_SUPPORTED = '0A000'

/** A table that Citus has distributed by key: its shards, and the statements that take more than one text. */
export class DistributedTable {
  readonly takeMany: typeof takeShardStatement = takeShardStatement
  readonly look: typeof lookShardsStatement = lookShardsStatement
  readonly #table: RateLimitTable
  readonly #statements: Statements
  #shards: Shards | undefined

  constructor(table: RateLimitTable) {
    this.#table = table
    this.#statements = statementsOf(table, true)
  }

  /** Reads where the shards are, unless that is known. */
  async load(db: Database): Promise<Shards> {
    this.#shards ??= await readShards(db, this.#table)
    return this.#shards
  }

  /** Whether Citus could not send a statement to one worker, because a shard was split meanwhile. */
  async hasSplit(error: RatelimitError, db: Database, asked: readonly Asked[]): Promise<boolean> {
    if (error.sqlState !== FEATURE_NOT_SUPPORTED || asked.length < 2) return false
    this.#shards = await readShards(db, this.#table).catch(() => this.#shards)
    return this.split(asked, ({ request }) => request.key).length > 1
  }

  /**
   * Forgets where the shards are if Citus could not send a statement to one worker: a shard may have been split
   * since. Returns whether it has forgotten.
   */
  forget(error: unknown): boolean {
    const isRefused = error instanceof RatelimitError && error.sqlState === FEATURE_NOT_SUPPORTED
    if (isRefused) this.#shards = undefined
    return isRefused
  }

  /** The number of a key's shard. 0 until the shards are known. */
  shardOf(key: string): number {
    return this.#shards?.of(key) ?? 0
  }

  /** Values in groups whose keys are on one shard. */
  split<T>(values: readonly T[], keyOf: (value: T) => string): readonly (readonly T[])[] {
    const groups = new Map<number, T[]>()
    for (const value of values) {
      const shard = this.shardOf(keyOf(value))
      const group = groups.get(shard)
      if (group) group.push(value)
      else groups.set(shard, [value])
    }
    return [...groups.values()]
  }

  /**
   * Makes missing rows. Citus works out an insert on the coordinator, so this inserts rows without a state. The
   * take then reads the clock of their own server. Rows that it does not write are removed.
   */
  async insertAndTake<Answer extends { readonly granted: number }>(
    connection: Connection,
    prefix: string,
    asked: readonly Asked[],
    waits: boolean,
    take: () => Promise<readonly (Answer | undefined)[]>,
  ): Promise<readonly (Answer | undefined)[]> {
    const keys = asked.map(({ request }) => request.key)
    if (waits) await this.insert(connection, prefix, keys)
    else await this.insertAtOnce(connection, prefix, keys)
    const answers = await take()
    const unwritten = asked.flatMap(({ request: { key, limiter } }, place) => {
      const answer = answers[place]
      return answer && limiter.startsFull && answer.granted <= 0 ? [key] : []
    })
    if (unwritten.length > 0) await this.removeEmpty(connection, prefix, unwritten)
    return answers
  }

  /** Inserts rows without a state for keys of one shard, where they are missing. Returns how many were. */
  async insert(connection: Connection, prefix: string, keys: readonly string[]): Promise<number> {
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
  insertAtOnce(connection: Connection, prefix: string, keys: readonly string[]): Promise<number> {
    return inTransaction(connection, async (own) => {
      await execute(own.db, sql`set local citus.propagate_set_commands to 'local'`)
      await execute(own.db, sql`set local lock_timeout to '3ms'`)
      return this.insert(own, prefix, keys)
    })
  }

  /** Inserts the row of a key if it is missing, and locks it. Returns how many were missing. */
  async insertAndLock(connection: Connection, prefix: string, key: string): Promise<number> {
    const build = () => insertEmptyStatement(this.#table, 1, true)
    return (await this.#run(connection, 'lock', build, { prefix, '0.key': key })).length
  }

  /** Removes those rows of one shard that have no state. */
  async removeEmpty(connection: Connection, prefix: string, keys: readonly string[]): Promise<void> {
    const build = () => removeEmptyShardStatement(this.#table)
    await this.#run(connection, 'remove empty', build, { prefix, key: textArray(keys) })
  }

  /** Locks those of the keys that no other transaction has locked, and returns them. */
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

  /** Deletes some expired rows of a prefix. Rows that others have locked stay. */
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
