export {
  type RateLimitTable,
  type RateLimitTables,
  type RateLimitTablesOptions,
  rateLimitDurable,
  rateLimitEphemeral,
  rateLimitTables,
} from '../schema/index.ts'
export type { AnyCredits } from './any-credits.ts'
export type { PlainReserveOptions } from './estimates/options.ts'
export type { Reservation, Reserved, ReservedPart } from './estimates/reservation.ts'
export type {
  Allowed,
  Denied,
  Granted,
  LimitAllResult,
  LimitResult,
  Remaining,
  Usage,
} from './kernel/answers/results.ts'
export type { Database } from './kernel/database/database.ts'
export type { DecisionMessage, ErrorMessage, StatementMessage, WaitMessage } from './kernel/diagnostics.ts'
export type { Duration } from './kernel/duration.ts'
export { RatelimitError, type RatelimitErrorCode, type RatelimitErrorDetails } from './kernel/errors.ts'
export type { EndedPeriod, Limiter } from './kernel/limits/algorithm.ts'
export type { TokenBucketOptions } from './kernel/limits/token-bucket.ts'
export type {
  AllOptions,
  BlockOptions,
  CallOptions,
  LimitOptions,
  Once,
  OnceOptions,
  RefundOptions,
  TxOptions,
} from './kernel/options/calls.ts'
export type { TransactionOf } from './kernel/options/choices.ts'
export type { RatelimitConfig } from './kernel/options/config.ts'
export type { Layer } from './kernel/options/layer.ts'
export { type CreditRequest, type LimitRequest, limitAll } from './limit-all.ts'
export { Ratelimit } from './ratelimit.ts'
export { checkTables, type TableDifference } from './tables/check-tables.ts'
export { type StorageOptions, storageSql, tableSql } from './tables/table-sql.ts'
