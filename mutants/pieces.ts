import type { ESTree } from 'rolldown/utils'
import { type Span, swaps } from './change.ts'

/** SQL in the source. */
export type Text = ESTree.TemplateLiteral | ESTree.StringLiteral

/** A word, a number, an operator or a placeholder; or brackets, or a case, with what is in them. */
export interface Piece extends Span {
  /** The first word, in lower case. */
  readonly text: string
  readonly inner: readonly Piece[]
}

export const PLACEHOLDER = '$'

const WORD = /'[^']*'|\d+(?:\.\d+)?(?:e[+-]?\d+)?|[a-z_]\w*|::|<=|>=|<>|!=|\|\||->>?|\S/gi

/** Words that open, and those that close them. */
const CLOSES = swaps({ '(': ')', case: 'end' })

export function piecesOf(text: Text, source: string): readonly Piece[] {
  return grouped(wordsOf(text, source).values())
}

/** The next pieces, up to the word that closes the brackets or the case that they are in. */
function grouped(words: Iterator<Span & { readonly text: string }>, close?: string): readonly Piece[] {
  const pieces: Piece[] = []
  for (let next = words.next(); !next.done; next = words.next()) {
    const { value: word } = next
    const closedBy = CLOSES.get(word.text)
    const inner = closedBy === undefined ? [] : grouped(words, closedBy)
    const end = inner.at(-1)?.end ?? word.end
    pieces.push({ ...word, end, inner: inner.filter(({ text }) => text !== closedBy) })
    if (word.text === close) break
  }
  return pieces
}

function wordsOf(text: Text, source: string): readonly (Span & { readonly text: string })[] {
  const placeholders = text.type === 'TemplateLiteral' ? text.expressions : []
  const opened = placeholders.map(({ start }) => source.lastIndexOf('${', start))
  const closed = placeholders.map(({ end }) => source.indexOf('}', end) + 1)
  return [text.start + 1, ...closed].flatMap((start, i) => {
    const end = opened[i] ?? text.end - 1
    const words = [...source.slice(start, end).matchAll(WORD)].map(({ 0: word, index }) => ({
      ...{ start: start + index, end: start + index + word.length },
      text: word.toLowerCase(),
    }))
    const after = closed[i]
    return after === undefined ? words : [...words, { start: end, end: after, text: PLACEHOLDER }]
  })
}
