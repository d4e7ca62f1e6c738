export type { LimiterRows, OneLimitRows, PlanOf, PlanRows, ReportOptions } from '../shared/limiter-rows.ts'
export { type DeniedKey, type DeniedOptions, denied } from './denied.ts'
export {
  type RowColumns,
  type RowOptions,
  remainingOf,
  resetOf,
  usedOf,
} from './row-numbers.ts'
export {
  type KeyUsage,
  type OtherUsage,
  type PlanUsageOptions,
  usage,
} from './usage.ts'
