import type { Mutant } from './mutants.ts'

/** Mutants that no caller can tell from the source. */
export interface Equivalent {
  readonly file: string
  /** The names around it, or the first of them. */
  readonly where: string
  /** Default: every kind. */
  readonly kind?: string
  readonly reason: string
}

export const EQUIVALENT: readonly Equivalent[] = []

export function isLike({ file, where, kind }: Mutant, listed: Equivalent): boolean {
  if (file !== listed.file || (listed.kind !== undefined && kind !== listed.kind)) return false
  return where === listed.where || where.startsWith(`${listed.where}.`)
}
