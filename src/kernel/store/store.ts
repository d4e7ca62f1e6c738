import type { SQLWrapper } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import type { KnownSize, Statements } from '../database/statement.ts'
import type { StateColumn } from '../limits/algorithm.ts'
import type { Link, Parameters } from '../sql/builder.ts'
import type { Commit } from '../sql/guard.ts'
import type { Answers, Asked, Namespace, Request } from './call.ts'

/** A table, its statements and its size as far as it is known. */
export interface Table {
  readonly table: RateLimitTable
  readonly statements: Statements
  readonly size: KnownSize
  readonly store: Store
  /** Loads what the store has to know before the first statement. Undefined if that is nothing. */
  readonly load: ((db: Database) => Promise<void>) | undefined
}

/** Where and how a statement is run. */
export interface Target {
  readonly connection: Connection
  readonly table: Table
  readonly namespace: Namespace
  readonly commit: Commit
  /** A time in the calendar period to send. Default: the injected clock's time, or this machine's. */
  readonly periodMs?: number | undefined
  /** How calls are decided on keys that have other rows than one each. Default: by the table's store. */
  readonly asks?: Asks | undefined
  /** Awaited before each statement outside of transactions. It creates missing tables. */
  readonly ensureTables?: (() => Promise<void>) | undefined
}

/** Asks for the keys of calls of one kind. Unless it `waits`, it skips rows that others hold. */
export type Ask = (target: Target, asked: readonly Asked[], waits: boolean) => Promise<Answers>

/** How calls are decided. Only calls of one key wait. */
export interface Asks {
  /** Takes from rows, or gives back to them. */
  readonly take: Ask
  /** Looks at rows, and never waits. */
  readonly look: Ask
  /** Makes the missing rows. */
  readonly make: Ask
}

/** How the rows of a table are decided, made and swept: on one server, or on several. */
export interface Store extends Asks {
  /** Deletes some expired rows of a prefix. Rows that others have locked stay. */
  sweep(db: Database, prefix: string, clock: number | null, keepEnded: boolean): Promise<number>
  /** The number of a key's shard. 0 until the shards are known. Keys of one shard share statements. */
  shardOf(key: string): number
  /** Values in groups whose keys can share a statement. */
  split<T>(values: readonly T[], keyOf: (value: T) => string): readonly (readonly T[])[]
  /** Forgets the shards if a statement has failed because one was split. Returns whether it has forgotten. */
  forget(error: unknown): boolean
  /** Undefined if one statement can lock, insert and charge rows of any keys. */
  readonly steps?: Steps
  /** Whether the planner has to see keys and sizes of pages, because Citus finds the shards by them. */
  readonly isShown: boolean
}

/** The steps of what one statement cannot do, because it cannot insert rows or lock those of any keys. */
export interface Steps {
  /** Where the row of a key is. One statement can charge the rows of one place. */
  placeOf(db: Database, key: string): Promise<string>
  /** Inserts the row of a key if it is missing. If it `waits`, it also locks the row. */
  insertForList(connection: Connection, prefix: string, key: string, waits: boolean): Promise<number>
  /** Removes those rows of one shard that have no state. */
  removeEmpty(connection: Connection, prefix: string, keys: readonly string[]): Promise<void>
  /** Locks those of the keys that no other transaction has locked, and returns them. */
  lockFree(db: Database, prefix: string, keys: readonly string[]): Promise<ReadonlySet<string>>
  /** Writes the whole limit into the row of a key. */
  fill(target: Target, request: Request): Promise<void>
  /** Finds and locks windows that others have not locked or changed, and removes them. */
  removeWindows(
    table: RateLimitTable,
    parameters: Parameters,
    returned: Pick<RateLimitTable, 'key' | StateColumn>,
  ): { readonly found: Link; readonly removed: SQLWrapper }
}
