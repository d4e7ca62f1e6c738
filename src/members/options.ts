import type { NamesOf } from '../kernel/base/check-options.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { RatelimitError } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import type { Sweeping } from '../kernel/options/choices.ts'
import type { CommonConfig } from '../kernel/options/config.ts'

interface Shared
  extends Pick<
      CommonConfig,
      'db' | 'prefix' | 'clock' | 'tables' | 'autoMigrate' | 'waitUntil' | 'timeout' | 'hashKeys'
    >,
    Pick<Sweeping, 'cleanupProbability'> {
  /** How many members a key may have: a whole number from 0 to 10,000. 0 denies. */
  readonly limit: number
  /** How long a member counts after it was added last. Default: until it is removed. */
  readonly window?: Duration | undefined
}

interface DurableMembers extends Shared {
  /** Keeps the members in the logged table. */
  readonly durable?: true
  /** Waits for the WAL flush, so that a crash loses no member. Default: `false`. */
  readonly synchronousCommit?: boolean
}

interface MembersOfEitherTable extends Shared {
  /** Keeps the members in the logged table. A crash of the server empties the other one. Default: `true`. */
  readonly durable?: boolean
  readonly synchronousCommit?: never
}

/** Options of the constructor of {@link Members}. */
export type MembersConfig = MembersOfEitherTable | DurableMembers

/** Options of `add`. */
export interface AddOptions extends TxOptions {
  /** Another limit for this call, such as that of a customer's plan. Default: that of the `Members`. */
  readonly limit?: number | undefined
}

// An option that has true here is checked by the call itself, or together with the others.

export const CONFIG: NamesOf<MembersConfig> = {
  ...{ db: true, prefix: true, limit: true, window: true, durable: true, synchronousCommit: true },
  ...{ clock: true, tables: true, autoMigrate: true, waitUntil: true, timeout: true, hashKeys: true },
  cleanupProbability: true,
}

export const ADD: NamesOf<AddOptions> = { ...CALLS.tx, limit: true }

/** Each new member reads all of its key. */
const MAX_MEMBERS = 10_000

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkLimit(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 0 && limit <= MAX_MEMBERS) return limit
  throw new RatelimitError('INVALID_LIMIT', 'The limit must be a whole number of members from 0 to 10,000.')
}

/** The latest time that a row can hold. */
const NEVER_MS = 8e15

/** The length of the window in milliseconds. Without one it never ends. */
export function lengthOf(window: Duration | undefined): number {
  return window === undefined ? NEVER_MS : parseDuration(window, 'The window')
}

/** A time in an answer. */
export function answeredTime(ms: number): number {
  return ms >= NEVER_MS ? Number.POSITIVE_INFINITY : ms
}
