import { RatelimitError } from './errors.ts'

/**
 * Untyped callers may give a rate where options belong, which would be ignored, or null, which would end in a
 * TypeError.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkOptions(options: unknown, what = 'Options'): void {
  if (typeof options !== 'object' || options === null) {
    throw new RatelimitError('INVALID_OPTION', `${what} must be an object.`)
  }
}
