import { inject } from 'vitest'

/** PGlite is slower than the server, so it tries a third of the calls. */
const PGLITE_SHARE = 1 / 3

/**
 * How often to try a property by random calls, which on PGlite prove the SQL only.
 * `FC_SEED=<the reported seed>` makes the same calls again, `FC_TIMES=1000` is for a long run.
 */
export function runs(onServer: number): { readonly numRuns: number; readonly seed?: number } {
  const { FC_SEED: seed, FC_TIMES: times = 1 } = process.env
  const here = inject('driver') === 'pglite' ? onServer * PGLITE_SHARE : onServer
  return { numRuns: Math.ceil(here * Number(times)), ...(seed ? { seed: Number(seed) } : {}) }
}
