import type { Database } from '../database/database.ts'
import type { Limiter } from '../limits/algorithm.ts'
import type { Credits } from '../limits/credits.ts'
import type {
  Coalescing,
  Degrading,
  DurableTable,
  EitherTable,
  EitherWay,
  Layered,
  QuotaTable,
  Reporting,
  Sweeping,
  Throwing,
} from './choices.ts'
import type { CommonConfig } from './common.ts'
import type { QuotaConfig, RatelimitConfig } from './config.ts'

/** What a {@link Ratelimit} limits: the rate of calls, or what is taken from grants of credits. */
export type Kind = 'rate' | 'credits'

/** A limiter of the kind. */
export type LimiterOf<K extends Kind> = (Limiter | Credits) & { readonly kind: K }

/** The key of a call that needs a limiter of one kind. With another kind, no key compiles. */
export type KeyFor<K extends Kind, Needed extends Kind> = K extends Needed ? string : never

/** The options for a limiter of the kind. */
export type ConfigOf<K extends Kind, D = Database> = (RatelimitConfig<D> | CreditsConfig<D>) & {
  readonly limiter: LimiterOf<K>
}

/** The options that mean something for credits in grants. */
type GrantedConfig<D = Database> = Pick<
  CommonConfig<D>,
  'db' | 'prefix' | 'clock' | 'tables' | 'autoMigrate' | 'waitUntil' | 'timeout' | 'hashKeys'
> &
  Pick<CommonConfig, 'preparedStatements' | 'dryRun'> &
  Pick<Sweeping, 'cleanupProbability'> &
  (EitherWay | Coalescing) &
  (Throwing | Degrading) &
  Layered<D> & {
    /** The credits, from `Ratelimit.credits`. */
    readonly limiter: Credits
  }

/** Options of the constructor of {@link Ratelimit} for credits in grants. */
export type CreditsConfig<D = Database> = GrantedConfig<D> &
  (EitherTable | DurableTable) & {
    readonly [Name in Exclude<keyof RatelimitConfig, TableName | keyof GrantedConfig>]?: never
  }

/** Options of the constructor of `Quota` for credits in grants. */
export type CreditQuotaConfig<D = Database> = GrantedConfig<D> &
  QuotaTable &
  Reporting & {
    readonly [Name in Exclude<keyof QuotaConfig, TableName | 'thresholds' | keyof GrantedConfig>]?: never
  }

type TableName = 'durable' | 'synchronousCommit'

/** The options of a `Quota` for a limiter of the kind. */
export type QuotaConfigOf<K extends Kind, D = Database> = (QuotaConfig<D> | CreditQuotaConfig<D>) & {
  readonly limiter: LimiterOf<K>
}
