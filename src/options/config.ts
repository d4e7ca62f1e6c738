import type { NamesOf } from '../base/check-options.ts'
import type { Database } from '../database/database.ts'
import type {
  Asking,
  Coalescing,
  Degrading,
  Denials,
  DurableTable,
  EitherTable,
  EitherWay,
  Keeping,
  Leasing,
  NoDenials,
  NotRecording,
  Recording,
  Sweeping,
  Throwing,
} from './choices.ts'
import type { CommonConfig } from './common.ts'

/** Options of the constructor of {@link Ratelimit}. */
export type RatelimitConfig<D extends Database = Database> = CommonConfig<D> &
  (NotRecording | Recording<D>) &
  (Sweeping | Keeping) &
  (EitherWay | Coalescing) &
  (EitherTable | DurableTable) &
  (NoDenials | Denials) &
  (Throwing | Degrading) &
  (Asking | Leasing)

export const CONFIG_NAMES: NamesOf<RatelimitConfig> = {
  db: true,
  limiter: true,
  prefix: true,
  durable: true,
  synchronousCommit: true,
  cleanupProbability: true,
  keepEnded: true,
  grace: true,
  lease: true,
  blocks: true,
  inMemoryBlock: true,
  maxBlockedKeys: true,
  clock: true,
  tables: true,
  distributed: true,
  autoMigrate: true,
  timeout: true,
  onError: true,
  onDegraded: true,
  coalesce: true,
  connections: true,
  preparedStatements: true,
  waitUntil: true,
  thresholds: true,
  dryRun: true,
  hashKeys: true,
  reservationSecret: true,
  denials: true,
  onOtherPlan: true,
  onEntries: true,
}
