import { RatelimitError } from './errors.ts'

/**
 * Untyped callers may give null, or a rate where options belong: it would be ignored without a word.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkOptions(options: unknown): void {
  if (typeof options !== 'object' || options === null) {
    throw new RatelimitError('INVALID_OPTION', 'Options must be an object.')
  }
}
