export type { ChangePlanOptions } from '../options/calls.ts'
export type { Threshold } from '../options/choices.ts'
export type { QuotaConfig } from '../options/config.ts'
export type { CreditQuotaConfig } from '../options/kinds.ts'
export type {
  CreditReserveOptions,
  NamedReserveOptions,
  NamedSpendOptions,
  PlainSpendOptions,
  ReserveAllOptions,
  ReserveOptions,
  SpendOptions,
} from '../options/reserve.ts'
export type {
  CommitSpentOptions,
  ReservationName,
  SettleAllOptions,
  SettleExpiredOptions,
  SettleOptions,
} from '../options/settle.ts'
export type { SettledAll } from '../reservations/costs.ts'
export type { Reservations, ReservedAll } from '../reservations/reserve-calls.ts'
export type { SettledSpending, Spent } from '../reservations/spend-from.ts'
export { type ClosedPeriod, type ClosePeriodsOptions, closePeriods } from './close-periods.ts'
export { type OpenReservation, type OpenReservationsOptions, openReservations } from './open-reservations.ts'
export { type Prorated, prorate } from './prorate.ts'
export { Quota } from './quota.ts'
export type {
  CreditReserveRequest,
  CreditSpendRequest,
  ReserveRequest,
  SpendRequest,
} from './requests.ts'
export { reserveAll } from './reserve-all.ts'
export { settle } from './settle.ts'
export { type ExpiredReservation, settleExpired } from './settle-expired.ts'
export { spend } from './spend.ts'
