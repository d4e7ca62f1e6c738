import { HANDLE } from '../base/handle.ts'
import { checkOption } from '../options/validate.ts'
import type { Checker } from './checker.ts'
import type { FundedCall } from './funds.ts'

/** The parts of a `Ratelimit` that functions of the package use. */
export interface Handle {
  readonly checker: Checker
  /** Makes a call that funds pay. Undefined if each call of the limiter has one row. */
  readonly funded: ((key: string, asked: FundedOptions) => Promise<FundedCall>) | undefined
}

/** What a call asks of funds. */
export interface FundedOptions {
  readonly rate?: number | undefined
  readonly force?: boolean | undefined
  readonly atLeast?: number | undefined
}

/** Lets functions reach the parts of a `Ratelimit`. */
export function expose(ratelimit: object, handle: Handle): void {
  Object.defineProperty(ratelimit, HANDLE, { value: handle })
}

/**
 * The parts of a `Ratelimit`.
 *
 * @throws RatelimitError `INVALID_OPTION` with the message if it is none.
 */
export function handleOf(ratelimit: unknown, message: string): Handle {
  const handle = handleIn(ratelimit)
  checkOption(handle !== undefined, message)
  return handle
}

/** The parts of a `Ratelimit`. Undefined if it is none. */
export function handleIn(ratelimit: unknown): Handle | undefined {
  return Object(ratelimit)[HANDLE]
}
