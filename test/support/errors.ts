import { RatelimitError } from '../../src/index.ts'

/** The error of the package with which a call is refused. */
export async function errorOf(call: () => unknown): Promise<RatelimitError> {
  const error = await Promise.resolve()
    .then(call)
    .then(
      () => undefined,
      (reason: unknown) => reason,
    )
  if (!(error instanceof RatelimitError))
    throw new Error('It is not refused by the package.', { cause: error })
  return error
}
