/**
 * The first of the times `guess`, and `stepMs` earlier and later, at which `fits` says yes; it goes on saying yes from there.
 *
 * The guess is solved for in floating point and may be a step off. What decides is the same formula, in the same order of
 * operations, as the statement's: IEEE 754 gives both the same bits.
 */
export function firstAt(guess: number, stepMs: number, fits: (time: number) => boolean): number {
  // Beyond that a step changes nothing.
  if (!Number.isSafeInteger(guess)) return Number.POSITIVE_INFINITY
  let time = guess
  while (fits(time - stepMs)) time -= stepMs
  while (!fits(time)) time += stepMs
  return time
}
