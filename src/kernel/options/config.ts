import type { Database } from '../database/database.ts'
import type {
  Coalescing,
  Degrading,
  Denials,
  DurableTable,
  EitherTable,
  EitherWay,
  Keeping,
  Layered,
  NoDenials,
  NoPeriods,
  QuotaTable,
  Reporting,
  Sweeping,
  Throwing,
} from './choices.ts'
import type { CommonConfig } from './common.ts'

type EitherConfig<D> = CommonConfig<D> &
  Layered<D> &
  (EitherWay | Coalescing) &
  (NoDenials | Denials) &
  (Throwing | Degrading)

/** Options of the constructor of {@link Ratelimit}. */
export type RatelimitConfig<D = Database> = EitherConfig<D> & NoPeriods & (EitherTable | DurableTable)

/** Options of the constructor of `Quota`. */
export type QuotaConfig<D = Database> = EitherConfig<D> & (Sweeping | Keeping) & Reporting & QuotaTable
