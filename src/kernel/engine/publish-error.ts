import { channels, type ErrorMessage } from '../diagnostics.ts'
import { quietly, RatelimitError } from '../errors.ts'
import type { Call } from '../store/call.ts'
import type { Parts } from './parts.ts'

/** Publishes that a call failed, or that `onError` answered it. */
export function publishError({ rows, terms }: Parts, { key }: Pick<Call, 'key'>, error: unknown): void {
  if (!(error instanceof RatelimitError)) return
  const failure: ErrorMessage = { prefix: rows.namespace.prefix, key, error }
  channels.error?.publish(failure)
  for (const layer of terms.layers) quietly(() => layer.failed?.(failure))
}
