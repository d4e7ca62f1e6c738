import type { ReportedFacts } from '../answers/answer.ts'
import type { RatelimitError } from '../errors.ts'
import type { Limiter, StoredLimiter } from '../limits/algorithm.ts'
import type { Layer } from '../options/layer.ts'
import type { Watch } from '../queue/waits.ts'
import type { Target } from '../store/store.ts'
import type { Timeout } from './bounds.ts'
import type { InAdvance, Supplier } from './in-advance.ts'
import type { GoOn, Sweeps } from './sweeps.ts'

/** What a checker is made of. */
export interface Parts {
  /** Where the rows are, and how a statement reaches them alone. */
  readonly rows: Target
  readonly terms: LimiterTerms
  readonly alone: Alone
}

/** What a limiter grants, keeps and reports. */
export interface LimiterTerms {
  readonly limiter: Limiter
  readonly reporting: ReportedFacts
  /** Whether a cleanup keeps windows that have ended. */
  readonly keepEnded: boolean
  /** How long after the end of a period a settlement corrects it. */
  readonly graceMs: number
  /** The limit of the gate that charges have to pass, if there is one. */
  readonly gate?: StoredLimiter | undefined
  /** What gets to know how calls were answered. */
  readonly layers: readonly Layer[]
  /** Hashes keys, if hashes are stored. */
  readonly hash?: ((key: unknown) => Promise<string>) | undefined
}

/** How calls outside of transactions are made. */
export interface Alone {
  readonly degrading: OutagePolicy
  readonly bounds: { readonly time: Timeout } | undefined
  /** How many shared statements may be under way. Undefined if each call has a statement of its own. */
  readonly connections: number | undefined
  readonly sweeps: Sweeps
  readonly watch: Watch
  readonly maxBlockedKeys?: number | undefined
  /** Takes units in advance. Undefined if the database decides each call. */
  readonly inAdvance?: ((supplier: Supplier) => InAdvance) | undefined
  readonly goOn: GoOn
}

/** How calls are answered during an outage. */
export interface OutagePolicy {
  readonly onError: 'throw' | 'allow' | 'deny'
  readonly onDegraded: ((error: RatelimitError) => void) | undefined
}
