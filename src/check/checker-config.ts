import type { Limiter } from '../algorithms/algorithm.ts'
import type { Connection } from '../database/connection.ts'
import type { Namespace, Table } from '../runtime/call.ts'
import type { Commit } from '../statements/setting.ts'
import type { Reporting } from './answer.ts'
import type { Bounds } from './bounds.ts'
import type { Degrading } from './degrading.ts'

/** How a checker is made. */
export interface CheckerConfig {
  readonly home: Connection
  readonly table: Table
  readonly namespace: Namespace
  readonly limiter: Limiter
  readonly reporting: Reporting
  readonly degrading: Degrading
  /** How long a call outside a transaction may take. */
  readonly bounds: Bounds | undefined
  readonly commit: Commit
  /** How many shared statements may be under way; undefined if each call has a statement of its own. */
  readonly connections: number | undefined
  readonly cleanupProbability: number
  /** Whether a cleanup leaves windows that have ended. */
  readonly keepEnded: boolean
  readonly maxBlockedKeys: number | undefined
  /** What the texts of reservations are signed with. */
  readonly reservationSecret: string | undefined
  /** Waited for before the first statement. */
  readonly ensureTables: (() => Promise<void>) | undefined
  /** Tells the runtime of work that goes on after an answer. */
  readonly goOn: (work: Promise<unknown>) => void
}
