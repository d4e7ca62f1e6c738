import type { AnyAlgorithm, Limiter } from './algorithm.ts'
import { fixedWindow } from './fixed-window.ts'

/** Never asked: what has no limit needs no statement. */
const unlimited: AnyAlgorithm = { ...fixedWindow, name: 'unlimited', whole: false }

export const UNLIMITED: Limiter = {
  algorithm: unlimited,
  params: { limit: Number.POSITIVE_INFINITY, periodMs: 1 },
}

export function isUnlimited({ algorithm }: Limiter): boolean {
  return algorithm === unlimited
}
