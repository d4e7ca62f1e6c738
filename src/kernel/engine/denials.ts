import { HANDLE } from '../base/handle.ts'
import type { Moment } from '../base/moment.ts'
import { quotedName } from '../database/table-name.ts'
import type { Target } from '../store/store.ts'

/** When a call was sent. */
export interface SentAt {
  /** By the clocks of this process. */
  readonly at: Moment
  /** By the injected clock, if there is one. */
  readonly clock: number | null
}

/** What a limiter remembers of the keys of its rows. */
export interface Memory {
  readonly rows: Target
  /** Forgets what may not hold for the key any more: its denials after a refund, everything after a reset. */
  forget(key: string, after: 'refund' | 'reset'): void
}

const shared = Object(globalThis)
shared[HANDLE] ??= new Set()

/** The memories of all limiters of this process, whichever copy of the package has made them. */
const living: Set<WeakRef<Memory>> = shared[HANDLE]
let gone: FinalizationRegistry<WeakRef<Memory>> | undefined

/** Lets refunds and resets by other limiters of this process reach the memory, as long as it is in use. */
export function register(memory: Memory): void {
  const ref = new WeakRef(memory)
  living.add(ref)
  // Made here, because older compatibility dates of Workers do not have this class.
  gone ??= new FinalizationRegistry((dead) => living.delete(dead))
  gone.register(memory, ref)
}

/**
 * Makes every limiter of this process forget what it remembers of a key, so that the database decides again.
 */
export function forgetEverywhere(rows: Target, ...forgotten: Parameters<Memory['forget']>): void {
  for (const ref of living) {
    const memory = ref.deref()
    if (memory?.rows.namespace.prefix !== rows.namespace.prefix) continue
    if (quotedName(memory.rows.table.table) === quotedName(rows.table.table)) memory.forget(...forgotten)
  }
}
