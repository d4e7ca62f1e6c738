import type { AnyAlgorithm, Limiter, Numbers } from './algorithm.ts'

/**
 * Rows expire on a grid of an eighth of the period, so that most updates leave the indexed column as it is
 * (HOT).
 */
const GRID_SHARE = 8
const MIN_GRID_MS = 1000

/** A limiter of the algorithm. `name` tells apart what the parameters do not. */
export function limiterOf(
  algorithm: AnyAlgorithm,
  own: Numbers<string> & Numbers<'limit' | 'periodMs'>,
  calendar: Pick<Limiter, 'periodAt'> & { readonly name?: string } = {},
): Limiter {
  const { name = '', ...periods } = calendar
  const expiryGridMs = Math.max(MIN_GRID_MS, Math.floor(own.periodMs / GRID_SHARE))
  const signature = `${algorithm.name} ${Object.values(own).join()} ${name}`
  return { algorithm, params: { ...own, expiryGridMs }, signature, ...periods }
}

export function sameLimiter(one: Limiter, other: Limiter): boolean {
  return one === other || one.signature === other.signature
}

/** Whether what one limiter writes is read by the other. */
export function sharesRows(one: Limiter, other: Limiter): boolean {
  return one.algorithm.columns === other.algorithm.columns
}
