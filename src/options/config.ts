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
