/** The warnings of the package. docs/errors.md has a section for each. */
export type WarningCode =
  | 'FORWARDED_IGNORED'
  | 'UNLOGGED_ON_NEON'
  | 'LONG_WAIT'
  | 'SHARED_PREFIX'
  | 'STORE_FAILED'

/** The most warnings of a process. More would not be read, and the memory of them must not grow. */
const MAX_WARNINGS = 100

/** The warnings that the process has printed. */
export const warned: Set<string> = new Set()

/** Prints a warning once in the process for each code and `about`. The message ends with a link to the docs. */
export function warnOnce(code: WarningCode, message: string, about = ''): void {
  const warning = `${code} ${about}`
  if (warned.has(warning) || warned.size >= MAX_WARNINGS) return
  warned.add(warning)
  console.warn(`drizzle-ratelimit ${code}: ${message}`)
}
