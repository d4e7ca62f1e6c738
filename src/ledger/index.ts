export type { LedgerLayer } from '../kernel/options/choices.ts'
export type { Entry } from '../kernel/store/entry.ts'
export { ledger } from './ledger.ts'
