import { inject } from 'vitest'

/** How much slower PGlite is than the server. */
const SLOWER = 3

/**
 * How often to try a property by random calls. On PGlite it is a third: it is slower, and proves the SQL only.
 * `FC_SEED=<the reported seed>` makes the same calls again, `FC_TIMES=1000` is for a long run.
 */
export function runs(onServer: number): { readonly numRuns: number; readonly seed?: number } {
  const { FC_SEED: seed, FC_TIMES: times = 1 } = process.env
  const here = inject('driver') === 'pglite' ? onServer / SLOWER : onServer
  return { numRuns: Math.ceil(here * Number(times)), ...(seed ? { seed: Number(seed) } : {}) }
}
