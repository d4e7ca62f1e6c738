import type { Limiter } from '../algorithms/algorithm.ts'
import type { Reporting } from '../answers/answer.ts'
import type { Connection } from '../database/connection.ts'
import type { Terms } from '../leases/leases.ts'
import type { Namespace } from '../runtime/call.ts'
import type { Table, TakeStatement } from '../runtime/store.ts'
import type { Commit } from '../statements/setting.ts'
import type { Timeout } from './bounds.ts'
import type { Degrading } from './degrading.ts'

/** How denials are counted. */
export interface DenialCounting {
  /** The time between two writes of the counts. */
  readonly everyMs: number
  /** How many keys are counted at a time. */
  readonly top: number
}

/** The configuration of a checker. */
export interface CheckerConfig {
  readonly home: Connection
  readonly table: Table
  readonly namespace: Namespace
  readonly limiter: Limiter
  /** The statement that takes, if keys have other rows than one each. */
  readonly takeStatement?: TakeStatement | undefined
  readonly reporting: Reporting
  readonly degrading: Degrading
  /** The limits on the time of a call outside a transaction. */
  readonly bounds: { readonly time: Timeout } | undefined
  readonly commit: Commit
  /** How many shared statements may be under way. Undefined if each call has a statement of its own. */
  readonly connections: number | undefined
  readonly cleanupProbability: number
  /** Whether a cleanup keeps windows that have ended. */
  readonly keepEnded: boolean
  /** How long after the end of a period a settlement corrects it. */
  readonly graceMs: number
  readonly maxBlockedKeys: number | undefined
  /** How denials are counted. Undefined if they are not. */
  readonly denials: DenialCounting | undefined
  /** Hashes keys, if hashes are stored. */
  readonly hash: ((key: unknown) => Promise<string>) | undefined
  /** Whether keys can be blocked, so that charges ask the gate too. */
  readonly blocks: boolean
  /** The terms of leases. Undefined if the database decides each call. */
  readonly leases: Terms | undefined
  /** Called at each use. It watches for other limiters of the prefix. */
  readonly onUse: (() => void) | undefined
  /** Awaited before each statement. It creates missing tables. */
  readonly ensureTables: (() => Promise<void>) | undefined
  /** Hands work that continues after an answer to the runtime. */
  readonly goOn: (work: Promise<unknown>) => void
}
