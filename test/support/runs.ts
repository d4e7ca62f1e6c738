import { inject } from 'vitest'

/** PGlite is slower than the server, so it tries some of the calls. */
const PGLITE_SHARE = 1 / 5

/**
 * How often to try a property by random calls, which on PGlite prove the SQL only, and the seed that makes
 * them. `FC_SEED=<the reported seed>` makes the same calls again, `FC_TIMES=1000` is for a long run.
 */
export function runs(onServer: number): { readonly numRuns: number; readonly seed: number } {
  const here = inject('driver') === 'pglite' ? onServer * PGLITE_SHARE : onServer
  return { numRuns: Math.ceil(here * Number(process.env['FC_TIMES'] ?? 1)), seed: anySeed() }
}

/** Another one each time, but not in CI: a change must not fail there by calls that the last one was spared. */
export function anySeed(): number {
  const { FC_SEED: given, CI: isGate } = process.env
  if (given) return Number(given)
  return isGate ? 1 : Math.floor(Math.random() * 2 ** 31)
}
