import { CITUS } from './citus.ts'
import { cleanup } from './cleanup.ts'
import { cliffs } from './cliffs.ts'
import { FEW_CALLERS, MANY_CALLERS, oneCaller } from './concurrent.ts'
import { contended } from './contended.ts'
import { CREDITS } from './credits.ts'
import { denials } from './denials.ts'
import { ENTRIES } from './entries.ts'
import { EVERY_CALL } from './every-call.ts'
import { flood } from './flood.ts'
import { held } from './held.ts'
import { hotUpdates } from './hot-updates.ts'
import { IN_TRANSACTION } from './in-transaction.ts'
import type { Load } from './load.ts'
import { memory } from './memory.ts'
import { NETWORK } from './network.ts'
import { PREFETCHING } from './prefetch.ts'
import { BILLED } from './prefetch-quota.ts'
import { processes } from './processes.ts'
import { SEVERAL } from './several.ts'
import { SLOTS } from './slots.ts'
import { tableSize } from './table-size.ts'

export const LOADS: readonly Load[] = [
  oneCaller,
  ...FEW_CALLERS,
  ...MANY_CALLERS,
  ...SEVERAL,
  ...EVERY_CALL,
  cliffs,
  ...CREDITS,
  ...IN_TRANSACTION,
  ...NETWORK,
  ...PREFETCHING,
  ...BILLED,
  ...SLOTS,
  contended,
  ...CITUS,
  ...ENTRIES,
  held,
  flood,
  denials,
  processes,
  tableSize,
  cleanup,
  hotUpdates,
  memory,
]

/** The loads with this name, or with names that begin with it. `network` gives the loads of all delays. */
export function loadsNamed(wanted: string): readonly Load[] {
  return LOADS.filter(({ name }) => name === wanted || name.startsWith(`${wanted}-`))
}
