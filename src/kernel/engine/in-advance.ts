import type { Dispatcher } from '../queue/queue.ts'
import type { WaitingCalls } from '../queue/waits.ts'
import type { Decision, Request } from '../store/call.ts'
import type { GoOn } from './sweeps.ts'

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
