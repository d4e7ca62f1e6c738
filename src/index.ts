export {
  type RateLimitTable,
  type RateLimitTables,
  type RateLimitTablesOptions,
  rateLimitDurable,
  rateLimitEphemeral,
  rateLimitTables,
} from '../schema/index.ts'
export type { EndedPeriod, Limiter } from './algorithms/algorithm.ts'
export type { Credits, CreditsOptions } from './algorithms/credits.ts'
export type { TokenBucketOptions } from './algorithms/token-bucket.ts'
export type {
  Allowed,
  Denied,
  Granted,
  GrantResult,
  LimitAllResult,
  LimitResult,
  Remaining,
  Usage,
} from './answers/results.ts'
export type { CreditReservation, CreditReserved } from './credits/credits.ts'
export type { CreditGrant } from './credits/grants.ts'
export type { Database } from './database/database.ts'
export type { DecisionMessage, ErrorMessage, StatementMessage, WaitMessage } from './diagnostics.ts'
export type { Duration } from './duration.ts'
export { RatelimitError, type RatelimitErrorCode, type RatelimitErrorDetails } from './errors.ts'
export { type CreditRequest, type LimitRequest, limitAll } from './limit-all.ts'
export type {
  AllOptions,
  BlockOptions,
  CallOptions,
  LimitOptions,
  Once,
  OnceOptions,
  RefundOptions,
  TxOptions,
} from './options/calls.ts'
export type { LeaseTerms, TransactionOf } from './options/choices.ts'
export type { RatelimitConfig } from './options/config.ts'
export type { CreditGrantOptions, CreditLimitOptions, GrantOptions } from './options/grants.ts'
export type { CreditsConfig } from './options/kinds.ts'
export type { Layer } from './options/layer.ts'
export type {
  PlainCreditReserveOptions,
  PlainReserveOptions,
} from './options/reserve.ts'
export { Ratelimit } from './ratelimit.ts'
export type { Reservation, Reserved, ReservedPart } from './reservations/reservation.ts'
export { checkTables, type TableDifference } from './tables/check-tables.ts'
export { type StorageOptions, storageSql, tableSql } from './tables/ddl.ts'
