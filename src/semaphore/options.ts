import type { NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import type { Duration } from '../kernel/duration.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { NoConnections, Sweeping } from '../kernel/options/choices.ts'
import type { CommonConfig } from '../kernel/options/config.ts'

/** The options that mean the same for every limiter. */
type Common = Pick<
  CommonConfig,
  'db' | 'prefix' | 'clock' | 'tables' | 'autoMigrate' | 'waitUntil' | 'timeout' | 'hashKeys'
> &
  Pick<Sweeping, 'cleanupProbability'> &
  Pick<NoConnections, 'coalesce'>

interface SlotOptions extends Common {
  /** How many slots a key has: a whole number from 0 to 1,000. 0 denies. */
  readonly limit: number
  /**
   * How long a slot is held without `extend`: from 100 ms to a day. If its holder crashes, the slot is free
   * when this time is over.
   */
  readonly lease: Duration
}

interface DurableSlots extends SlotOptions {
  /** Keeps the slots in the logged table. */
  readonly durable?: true
  /**
   * Waits for the WAL flush, so that not even the last leases before a crash are lost. It applies outside of
   * your transactions; inside, the transaction's own commit decides. Default: `false`.
   */
  readonly synchronousCommit?: boolean
}

interface SlotsOfEitherTable extends SlotOptions {
  /**
   * Keeps the slots in the logged table. A crash of the server empties the UNLOGGED table of `durable: false`.
   * More than the limit would then run at once, because the work of the forgotten leases goes on. Default:
   * `true`.
   */
  readonly durable?: boolean
  readonly synchronousCommit?: never
}

/** Options of the constructor of {@link Semaphore}. */
export type SemaphoreConfig = SlotsOfEitherTable | DurableSlots

/** Options of `acquire`. */
export interface AcquireOptions {
  /** Another number of slots for this call, such as that of a customer's plan. Default: the semaphore's. */
  readonly limit?: number | undefined
  /** Another length of the lease for this call. Default: the semaphore's. */
  readonly lease?: Duration | undefined
  /** How long to wait for a slot. Default: `0`, not at all. */
  readonly timeout?: Duration | undefined
  /** Ends the wait: the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  /**
   * Your transaction. The lock of the slot's row is then the lease: it ends with the transaction, however that
   * ends. Default: none.
   */
  readonly tx?: Database | undefined
}

// An option that has true here is checked by the call itself, or together with the others.

export const CONFIG: NamesOf<SemaphoreConfig> = {
  ...{ db: true, prefix: true, limit: true, lease: true, durable: true, synchronousCommit: true },
  ...{ clock: true, tables: true, autoMigrate: true, waitUntil: true, timeout: true, hashKeys: true },
  ...{ cleanupProbability: true, coalesce: true },
}

export const ACQUIRE: NamesOf<AcquireOptions> = {
  ...CALLS.tx,
  ...{ limit: true, lease: true, timeout: true, signal: true },
}
