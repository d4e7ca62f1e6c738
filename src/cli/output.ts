import { printable } from '../tables/printable.ts'

/** Where a command prints. */
export type Output = Pick<Console, 'log' | 'error'>

/** What an error and those underneath say: the driver's says what the limiter's does not. */
export function said(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(said).join('; ')
  if (!(error instanceof Error)) return String(error)
  const text = error.message || ('code' in error ? String(error.code) : error.name)
  return error.cause === undefined ? text : `${text}\n${said(error.cause)}`
}

/** The lines without what a terminal would act on. A name with a character taken out would be another name. */
export function safe(text: string): string {
  return text.split('\n').map(printable).join('\n')
}

/** An option of a command to copy into a shell. */
export function optionOf(name: string, value: string): string {
  const word = /^[\w.]+$/.test(value) ? value : `'${printable(value).replaceAll("'", `'\\''`)}'`
  return value.startsWith('-') ? `--${name}=${word}` : `--${name} ${word}`
}

/** Replaces the password in each URL. */
export function redact(text: string): string {
  return text
    .replaceAll(/(\w+:\/\/[^\s:/@]*):[^/\n]*@/g, '$1:***@')
    .replaceAll(/([?&]password=)[^\s&]*/gi, '$1***')
}
