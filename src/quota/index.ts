export type { SettledAll } from '../estimates/costs.ts'
export type {
  NamedReserveOptions,
  NamedSpendOptions,
  PlainSpendOptions,
  ReserveAllOptions,
  ReserveOptions,
  SpendOptions,
} from '../estimates/options.ts'
export type { OpenReservation } from '../estimates/read-open.ts'
export type { Reservations, ReservedAll } from '../estimates/reserve-calls.ts'
export type {
  CommitSpentOptions,
  ReservationName,
  SettleAllOptions,
  SettleOptions,
} from '../estimates/settle-options.ts'
export type { SettledSpending, Spent } from '../estimates/spend-from.ts'
export type { Threshold } from '../kernel/options/choices.ts'
export type { QuotaConfig } from '../kernel/options/config.ts'
export type { LimiterRows, OneLimitRows, PlanOf, PlanRows } from '../shared/limiter-rows.ts'
export type { ChangePlanOptions } from './change-plan.ts'
export type { ClosedPeriod } from './close-ended.ts'
export { type ClosePeriodsOptions, type ClosePlansOptions, closePeriods } from './close-periods.ts'
export { type OpenReservationsOptions, openReservations } from './open-reservations.ts'
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
export {
  type ExpiredReservation,
  type SettleExpiredOptions,
  type SettlePlansOptions,
  settleExpired,
} from './settle-expired.ts'
export { spend } from './spend.ts'
