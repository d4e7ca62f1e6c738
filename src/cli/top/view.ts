import { printable } from '../../shared/readable.ts'
import type { TopReport } from './reading.ts'
import { contentOf, fitting, type ScreenLine } from './table.ts'

/** A key that was pressed, as `node:readline` names it. */
export interface Pressed {
  /** What it writes. Undefined for a key like an arrow. */
  readonly text?: string | undefined
  readonly name?: string | undefined
  readonly ctrl?: boolean | undefined
}

export interface Size {
  readonly columns: number
  readonly rows: number
}

/** The lines above those that move, and the one below them. */
const [HEAD, FOOT] = [3, 1]

const HELP = 'q quit   ↑ ↓ move   / search'

/** What the screen shows: a part of the report, which keys move. */
export class View {
  readonly #every: string
  report: TopReport | undefined
  /** Why it could not be read since the report. */
  failure: string | undefined
  /** Only keys with this text in them are shown. */
  search = ''
  #isTyping = false
  #first = 0
  #page = 1

  constructor(every: string) {
    this.#every = every
  }

  /** Returns whether the user wants to stop. */
  press(pressed: Pressed): boolean {
    if (pressed.ctrl && pressed.name === 'c') return true
    if (this.#isTyping) this.#type(pressed)
    else if (pressed.name === 'q') return true
    else if (pressed.text === '/') [this.#isTyping, this.search, this.#first] = [true, '', 0]
    else if (pressed.name === 'escape') this.search = ''
    else this.#first += this.#stepOf(pressed.name)
    return false
  }

  #type({ text = '', name, ctrl }: Pressed): void {
    if (name === 'return' || name === 'enter') this.#isTyping = false
    else if (name === 'escape') [this.#isTyping, this.search] = [false, '']
    else if (name === 'backspace') this.search = [...this.search].slice(0, -1).join('')
    else if (!ctrl) this.search += text.replaceAll(/\p{C}/gu, '')
  }

  #stepOf(name = ''): number {
    const steps: Readonly<Record<string, number>> = {
      ...{ up: -1, k: -1, down: 1, j: 1, pageup: -this.#page, pagedown: this.#page, space: this.#page },
      ...{ home: Number.NEGATIVE_INFINITY, end: Number.MAX_SAFE_INTEGER },
    }
    return Object.hasOwn(steps, name) ? (steps[name] ?? 0) : 0
  }

  /** As many lines as the terminal has rows, none wider than it is. */
  lines({ columns, rows }: Size): ScreenLine[] {
    const shape = { width: columns, every: this.#every }
    const all = this.report ? contentOf(this.#matching(this.report), shape) : [{ text: 'Reading …' }]
    if (this.failure !== undefined) all[1] = failureLine(this.failure, columns)
    const body = all.slice(HEAD)
    this.#page = Math.max(1, rows - HEAD - FOOT)
    this.#first = Math.max(0, Math.min(this.#first, body.length - this.#page))
    const shown = body.slice(this.#first, this.#first + this.#page)
    const blank = Array.from({ length: this.#page - shown.length }, () => ({ text: '' }))
    const lines = [...all.slice(0, HEAD), ...shown, ...blank]
    const more = body.length > this.#page ? `   ${this.#first + shown.length} of ${body.length} lines` : ''
    const searched =
      this.#isTyping || this.search !== '' ? `/${this.search}${this.#isTyping ? '▏' : ''}   ` : ''
    const foot = fitting(this.#isTyping ? searched : searched + HELP + more, columns)
    return [...lines.slice(0, Math.max(0, rows - FOOT)), { text: foot, style: 'inverse' }]
  }

  #matching(report: TopReport): TopReport {
    const limits = report.limits.map((limit) => ({
      ...limit,
      keys: limit.keys.filter(({ key }) => key.includes(this.search)),
    }))
    return { ...report, limits }
  }
}

function failureLine(failure: string, columns: number): ScreenLine {
  return {
    text: fitting(`Not read since then: ${printable(failure.replaceAll('\n', ': '))}`, columns),
    style: 'red',
  }
}
