import { channels } from '../diagnostics.ts'
import { RatelimitError } from '../errors.ts'
import type { Call } from '../runtime/call.ts'

/** Publishes that a call failed, or that `onError` answered it. */
export function publishError(prefix: string, { key }: Pick<Call, 'key'>, error: unknown): void {
  if (error instanceof RatelimitError) channels.error?.publish({ prefix, key, error })
}
