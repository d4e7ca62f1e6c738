import type { ReportedFacts } from '../answers/thresholds.ts'
import type { Limiter, StoredLimiter } from '../limits/algorithm.ts'
import type { Layer } from '../options/layer.ts'
import type { Settings } from '../options/settings.ts'
import type { Dispatcher } from '../queue/queue.ts'
import type { WaitingCalls, Watch } from '../queue/waits.ts'
import type { Decision, Request } from '../store/call.ts'
import type { Target } from '../store/store.ts'
import type { Timeout } from './bounds.ts'
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
  /** How calls are answered during an outage. */
  readonly degrading: Pick<Settings, 'onError' | 'onDegraded'>
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

/** What a limiter offers to what takes units in advance. */
export interface Supplier {
  readonly clock: (() => number) | undefined
  /** Decides calls that are not answered from memory. */
  readonly dispatcher: Dispatcher
  /** The calls that the dispatcher keeps waiting, and those that wait for units. */
  readonly waiting: WaitingCalls
  /** Hands work that continues after an answer to the runtime. */
  readonly goOn: GoOn
  /** Sends a refund. It never rejects. */
  readonly giveBack: (refund: Request) => Promise<void>
}

/** Takes units of keys in advance, answers calls from them, and brings the others to the database. */
export interface InAdvance extends Dispatcher {
  /** The decision on a call from memory. Undefined if the database has to decide. */
  decide(call: Request): Decision | undefined
  /** Forgets what is left of a key's units, because the row has been reset. */
  forget(key: string): void
  /** Lets no call use a key's units, because the row changes in a transaction that is not over. */
  setAside(key: string): void
  /** Waits for what is being given back, so that none of it reaches a new row of a key. It never rejects. */
  returned(): Promise<void>
  /** Gives a key's units back, and takes no more until `end` is called. `returned` never rejects. */
  withhold(key: string): { readonly returned: Promise<void>; end(): void }
  /** Gives all units back. Calls after it take none. It never rejects. */
  close(): Promise<void>
}
