import { inject } from 'vitest'

/** The gate has time for what an edit rarely breaks. */
export const isGate: boolean = process.env['CI'] !== undefined

/** A mistake shows in few calls, or in rare ones, which the gate makes on the server. */
const SHARE = 1 / 5

/** How often to do what random calls or several connections may break. `FC_TIMES=1000` is for a long run. */
export function times(inGate: number): number {
  const here = isGate && inject('driver') !== 'pglite' ? inGate : inGate * SHARE
  return Math.ceil(here * Number(process.env['FC_TIMES'] ?? 1))
}

/**
 * How often to try a property by random calls, and the seed that makes them. `FC_SEED=<the reported seed>`
 * makes the same calls again.
 */
export function runs(inGate: number): { readonly numRuns: number; readonly seed: number } {
  return { numRuns: times(inGate), seed: anySeed() }
}

/** Another one each time, but not in CI: a change must not fail there by calls that the last one was spared. */
export function anySeed(): number {
  const given = process.env['FC_SEED']
  if (given) return Number(given)
  return isGate ? 1 : Math.floor(Math.random() * 2 ** 31)
}
