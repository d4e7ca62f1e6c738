import type { Allowed, Denied, LimitResult } from './kernel/answers/results.ts'

/** `Credits`, from `drizzle-ratelimit/credits`. */
export interface AnyCredits {
  /** Their namespace. */
  readonly prefix: string
  /** Whether they are in grants that can end. */
  readonly dated: boolean
  /** Takes units, or gives them back. */
  limit(key: string, options?: { readonly rate?: number | undefined }): Promise<LimitResult>
  /** Charges an estimate. */
  reserve(key: string, options?: { readonly rate?: number | undefined }): Promise<Estimated | Denied>
}

interface Estimated extends Allowed {
  commit(actual: number): Promise<Allowed>
  release(): Promise<Allowed>
}
