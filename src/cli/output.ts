/** Where a command prints. */
export type Output = Pick<Console, 'log' | 'error'>

/** What an error and those underneath say: the driver's says what the limiter's does not. */
export function said(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(said).join('; ')
  if (!(error instanceof Error)) return String(error)
  const text = error.message || ('code' in error ? String(error.code) : error.name)
  return error.cause === undefined ? text : `${text}\n${said(error.cause)}`
}

/** Replaces the password in each URL. */
export function redact(text: string): string {
  return text
    .replaceAll(/(\w+:\/\/[^\s:/@]*):[^/\n]*@/g, '$1:***@')
    .replaceAll(/([?&]password=)[^\s&]*/gi, '$1***')
}
