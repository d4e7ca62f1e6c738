import type { AnyAlgorithm, Limiter } from './algorithm.ts'
import { fixedWindow } from './fixed-window.ts'

/** Never asked: a call without a limit needs no statement. */
const unlimited: AnyAlgorithm = { ...fixedWindow, name: 'unlimited', columns: [], integersOnly: false }

export const UNLIMITED: Limiter = {
  algorithm: unlimited,
  params: { limit: Number.POSITIVE_INFINITY, periodMs: 1, expiryGridMs: 1 },
  signature: 'unlimited',
}

export function isUnlimited({ algorithm }: Limiter): boolean {
  return algorithm === unlimited
}
