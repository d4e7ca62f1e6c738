import { RatelimitError } from '../../src/index.ts'

/** The package's error that refuses the call. */
export async function errorOf(call: () => unknown): Promise<RatelimitError> {
  const error = await Promise.resolve()
    .then(call)
    .then(
      () => undefined,
      (reason: unknown) => reason,
    )
  if (!(error instanceof RatelimitError))
    throw new Error('The package did not refuse the call.', { cause: error })
  return error
}
