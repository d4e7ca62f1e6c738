export type { LedgerLayer } from '../options/choices.ts'
export type { Entry } from '../runtime/entry.ts'
export { ledger } from './ledger.ts'
