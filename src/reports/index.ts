export type { LimiterRows, PlanOf, ReportOptions } from '../shared/limiter-rows.ts'
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
  type OneLimitRows,
  type OtherUsage,
  type PlanRows,
  type PlanUsageOptions,
  usage,
} from './usage.ts'
