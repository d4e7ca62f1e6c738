export type { ReservationName } from '../estimates/settle-options.ts'
export { Credits, type GrantArguments, type GrantOf } from './credits.ts'
export type { DatedGrant, Grant, GrantResult } from './grants.ts'
export type {
  CreditBlockOptions,
  CreditLimitOptions,
  CreditReserveOptions,
  CreditsConfig,
  DatedGrantOptions,
  GrantOptions,
} from './options.ts'
export type { CreditReservation, CreditReserved, CreditReservedPart } from './reserved.ts'
