import { RatelimitError } from '../errors.ts'

const MAX_TRIES = 10

/** Whether Postgres has rolled the statement back: nothing was charged, and another try may succeed. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof RatelimitError)) return false
  return error.code === 'SERIALIZATION_FAILURE' || error.code === 'DEADLOCK'
}

/**
 * Runs the work, and again if it lost against another transaction. A random pause keeps the two from meeting
 * again.
 */
export async function retrying<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (!isTransient(error) || tries === MAX_TRIES) throw error
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 ** tries))
    }
  }
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
