import { channels } from '../diagnostics.ts'
import { RatelimitError } from '../errors.ts'
import type { Call } from '../runtime/call.ts'

/** Tells those who listen that a call failed, or was answered by `onError`. */
export function tellError(prefix: string, { key }: Call, error: unknown): void {
  if (error instanceof RatelimitError) channels.error?.publish({ prefix, key, error })
}
