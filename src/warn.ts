/** What the package warns of. docs/errors.md has a section for each. */
export type WarningCode = 'FORWARDED_IGNORED' | 'UNLOGGED_ON_NEON' | 'LONG_WAIT' | 'SHARED_PREFIX'

/** A process that has warned so often will not be heard, and what it remembers must not grow. */
const MAX_WARNINGS = 100

/** What the process has warned of. */
export const warned: Set<string> = new Set()

/** Warns, once in the process of each thing. The message ends with where to read more. */
export function warnOnce(code: WarningCode, message: string, about = ''): void {
  const warning = `${code} ${about}`
  if (warned.has(warning) || warned.size >= MAX_WARNINGS) return
  warned.add(warning)
  console.warn(`drizzle-ratelimit ${code}: ${message}`)
}
