import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'

/** A change of what a key has used, or of what it was granted. */
export interface Entry {
  /** The prefix of the limiter. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** What made it. A reservation is a `'reserve'` and, when its cost is known, a `'settle'`. */
  readonly kind: 'charge' | 'refund' | 'reserve' | 'settle' | 'grant'
  /** The units that were taken; below 0 if they were given back. For a grant, the units that were added. */
  readonly units: number
  /** The whole units that were left afterwards: of the grant, if it is one. */
  readonly remaining: number
  /** Unix milliseconds of the decision, by the clock that made it. */
  readonly at: number
  /** Windows: the Unix milliseconds at which the window began that has counted the units. */
  readonly start?: number
  /** With `once` or a name: the id as it is stored. */
  readonly id?: string
  /** Credits that end: the id of the grant. Units without one are owed, or pay what was owed. */
  readonly grant?: string
}

/** Gets the entries of one statement, in its transaction. */
export type WriteEntries = (tx: Database, entries: readonly Entry[]) => unknown

/** An entry, and the function that gets it. */
export interface Recorded {
  readonly write: WriteEntries
  readonly entry: Entry
}

/** A statement whose entries are handed out. */
export interface RecordedStatement<T> {
  readonly connection: Connection
  /** Whether the statement sets a short `lock_timeout`. */
  readonly isBrief: boolean
  run(own: Connection): Promise<T>
  recordedBy(result: T): readonly Recorded[]
}
