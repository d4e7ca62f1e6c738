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

// The plain choice is the last one: TypeScript 5 compares a mistake with the last ones.

type EitherConfig<D> = CommonConfig<D> &
  Layered<D> &
  (Coalescing | EitherWay) &
  (Denials | NoDenials) &
  (Degrading | Throwing)

/** Options of the constructor of {@link Ratelimit}. */
export type RatelimitConfig<D = Database> = EitherConfig<D> & NoPeriods & (DurableTable | EitherTable)

/** Options of the constructor of `Quota`. */
export type QuotaConfig<D = Database> = EitherConfig<D> & (Keeping | Sweeping) & Reporting & QuotaTable
