import { emitKeypressEvents, type Key } from 'node:readline'
import { styleText } from 'node:util'
import {
  cursorHide,
  cursorShow,
  cursorTo,
  enterAlternativeScreen,
  eraseEndLine,
  exitAlternativeScreen,
} from 'ansi-escapes'
import type { Screen } from '../output.ts'
import { padded, type ScreenLine } from './table.ts'

const { stdin, stdout } = process

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** The terminal, if the output goes to one that can be drawn on. */
export function screenOf(): Screen | undefined {
  if (!stdout.isTTY || process.env['TERM'] === 'dumb') return undefined
  let close = () => {}
  return {
    size: () => ({ columns: stdout.columns, rows: stdout.rows }),
    draw: (lines) => {
      // Many terminals stay on the last column of a full line, and would erase it afterwards.
      const shown = lines.map((line, row) => cursorTo(0, row) + eraseEndLine + styled(line, stdout.columns))
      stdout.write(shown.join(''))
    },
    open: ({ pressed, resized, ended }) => {
      const onKey = (text: string | undefined, key: Key) => pressed({ ...key, text })
      // The other screen of the terminal: what was there before comes back.
      stdout.write(enterAlternativeScreen + cursorHide)
      stdout.on('resize', resized)
      for (const signal of SIGNALS) process.on(signal, ended)
      if (stdin.isTTY) {
        emitKeypressEvents(stdin)
        stdin.setRawMode(true).on('keypress', onKey).resume()
      }
      close = () => {
        close = () => {}
        stdout.off('resize', resized)
        for (const signal of SIGNALS) process.off(signal, ended)
        if (stdin.isTTY) stdin.setRawMode(false).off('keypress', onKey).pause()
        stdout.write(cursorShow + exitAlternativeScreen)
      }
      process.once('exit', () => close())
    },
    close: () => close(),
  }
}

function styled({ text, style }: ScreenLine, columns: number): string {
  if (!style || !stdout.hasColors()) return text
  return styleText(style, style === 'inverse' ? padded(text, columns) : text)
}
