import { cleanup } from './cleanup.ts'
import { CONCURRENT } from './concurrent.ts'
import { denials } from './denials.ts'
import { hotUpdates } from './hot-updates.ts'
import { inTransaction } from './in-transaction.ts'
import type { Load } from './load.ts'
import { memory } from './memory.ts'
import { processes } from './processes.ts'
import { tableSize } from './table-size.ts'

export const LOADS: readonly Load[] = [
  ...CONCURRENT,
  inTransaction,
  denials,
  processes,
  tableSize,
  cleanup,
  hotUpdates,
  memory,
]
