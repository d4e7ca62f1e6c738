import { printable } from '../shared/readable.ts'
import type { ScreenLine } from './top/table.ts'
import type { Pressed, Size } from './top/view.ts'

/** The output of a command. */
export interface Output extends Pick<Console, 'log' | 'error'> {
  /** The terminal. Undefined if the output goes elsewhere. */
  readonly screen?: Screen | undefined
}

/** A terminal that a command may take for itself. */
export interface Screen {
  size(): Size
  /** Takes the whole terminal, until `close` brings back what was there before. */
  open(listener: ScreenListener): void
  /** Replaces what it shows, from the first row on. */
  draw(lines: readonly ScreenLine[]): void
  close(): void
}

/** Who is told what happens on a screen. */
export interface ScreenListener {
  pressed(key: Pressed): void
  resized(): void
  /** The process was asked to end. */
  ended(): void
}

/** The messages of an error and its causes. The driver's error has details that the limiter's has not. */
export function messagesOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messagesOf).join('; ')
  if (!(error instanceof Error)) return String(error)
  const text = error.message || ('code' in error ? String(error.code) : error.name)
  return error.cause === undefined ? text : `${text}\n${messagesOf(error.cause)}`
}

/** JSON, where characters that a terminal acts on are escaped: scripts read names as they are. */
export function jsonOf(value: unknown): string {
  const escaped = (text: string) =>
    text.replaceAll(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return JSON.stringify(value, undefined, 2).replaceAll(/(?!\n)[\p{Cc}\p{Cf}]/gu, escaped)
}

/** The lines without characters that a terminal acts on. They are replaced, so that names stay different. */
export function safe(text: string): string {
  return text.split('\n').map(printable).join('\n')
}

/** An option of a command, quoted for a shell. */
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
