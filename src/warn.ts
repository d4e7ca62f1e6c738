/** What the package warns of. docs/errors.md has a section for each. */
export type WarningCode = 'FORWARDED_IGNORED' | 'UNLOGGED_ON_NEON' | 'LONG_WAIT'

const warned = new Set<WarningCode>()

/** Warns, once in the process. The message ends with where to read more. */
export function warnOnce(code: WarningCode, message: string): void {
  if (warned.has(code)) return
  warned.add(code)
  console.warn(`drizzle-ratelimit ${code}: ${message}`)
}
