import { RatelimitError, type RatelimitErrorCode } from '../errors.ts'

/** Postgres has rolled the statement back. Nothing was charged, and another try may succeed. */
const TRANSIENT: ReadonlySet<RatelimitErrorCode> = new Set<RatelimitErrorCode>([
  'SERIALIZATION_FAILURE',
  'DEADLOCK',
])

const MAX_TRIES = 10

/** Whether the work lost against another transaction. */
export function isTransient(error: unknown): boolean {
  return error instanceof RatelimitError && TRANSIENT.has(error.code)
}

/** Runs the work, and again if it lost against another transaction. */
export function retrying<T>(work: () => Promise<T>): Promise<T> {
  return work().catch((error) => tryAgain(error, work))
}

/**
 * Tries failed work again if it lost against another transaction. A random pause keeps the two from meeting
 * again. Any other error is thrown.
 */
export async function tryAgain<T>(error: unknown, work: () => Promise<T>): Promise<T> {
  let last = error
  for (let tries = 1; tries < MAX_TRIES; tries++) {
    if (!isTransient(last)) break
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 ** tries))
    try {
      return await work()
    } catch (again) {
      last = again
    }
  }
  throw last
}

/** Each attempt can lose a race against others. After this many losses, something else is wrong. */
const MAX_ATTEMPTS = 50

/**
 * Attempts until there is a result.
 *
 * @param what What others do if they are faster: the rest of a sentence that begins with "they".
 * @throws RatelimitError `CONTENTION`
 */
export async function untilDone<T>(what: string, attempt: () => Promise<T | undefined>): Promise<T> {
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const result = await attempt()
    if (result !== undefined) return result
  }
  throw new RatelimitError(
    'CONTENTION',
    `Others were faster ${MAX_ATTEMPTS} times: they ${what}. The call had no effect.`,
    { contended: true },
  )
}
