import { type Change, change, doubled, otherOperators, type Span, swaps, withoutOne } from './change.ts'
import { type Piece, PLACEHOLDER, piecesOf, type Text } from './pieces.ts'

/** One word for another. */
const WORDS = swaps({
  ...{ floor: 'ceil', ceil: 'floor', round: 'floor', min: 'max', max: 'min' },
  ...{ asc: 'desc', desc: 'asc', true: 'false', false: 'true', clock_timestamp: 'now' },
})

/** Functions that can take one argument less. */
const LISTS: readonly string[] = ['least', 'greatest', 'coalesce']

/** Words that end an expression. */
const CLAUSES: readonly string[] = [
  ...['when', 'then', 'else', 'where', 'on', 'from', 'join', 'left', 'cross', 'as', 'set', 'returning'],
  ...['select', 'with', 'order', 'group', 'limit', 'offset', 'for', 'union', 'do', ',', ';'],
]

/** What can be wrong in SQL. */
export function sqlChanges(text: Text, source: string): readonly Change[] {
  return changesIn(piecesOf(text, source)).map((each) => ({ ...each, kind: `sql ${each.kind}` }))
}

function changesIn(pieces: readonly Piece[]): readonly Change[] {
  return pieces.flatMap((piece, at) => [...changesAt(pieces, piece, at), ...changesIn(piece.inner)])
}

function changesAt(pieces: readonly Piece[], piece: Piece, at: number): readonly Change[] {
  const { text } = piece
  const [before, after] = [pieces[at - 1], pieces[at + 1]]
  const other = WORDS.get(text)
  if (/^\d/.test(text)) return [change('number', piece, doubled(Number(text)))]
  if (!after) return []
  if (other !== undefined) return [change(`${text} to ${other}`, piece, other)]
  if (/^[-+*/%<>=]/.test(text))
    return isOperand(before) ? otherOperators(text, piece, pieces.some(isCondition)) : []
  if (text === 'and' || text === 'or') return oneSide(pieces, at, text)
  if (text === 'where') return [change('no where', around([piece, ...rightOf(pieces, at, CLAUSES)]), '')]
  if (text === 'when') {
    const condition = around(rightOf(pieces, at, ['then']))
    return [change('when always', condition, 'true'), change('when never', condition, 'false')]
  }
  if (LISTS.includes(text)) return withoutOne(`${text} lacks one`, split(after.inner))
  if (text === 'is' && after.text === 'null') return [change('is to is not', piece, 'is not')]
  if (text === 'left' && after.text === 'join') return [change('left join to join', piece, '')]
  const isNegation = text === 'not' && !/^(null|materialized)$/.test(after.text)
  return isNegation || (text === 'not' && before?.text === 'is') ? [change('no not', piece, '')] : []
}

function isCondition({ text }: Piece): boolean {
  return /^(and|or|when|where|on)$/.test(text)
}

/** Before the first piece there may be a placeholder of another text. */
function isOperand(piece: Piece | undefined): boolean {
  if (!piece || piece.text === PLACEHOLDER) return true
  return /^[\w'(]/.test(piece.text) && !CLAUSES.includes(piece.text)
}

/** `and` or `or` without what is to its right, and without what is to its left. */
function oneSide(pieces: readonly Piece[], at: number, word: 'and' | 'or'): readonly Change[] {
  const edges = [...CLAUSES, 'or', ...(word === 'and' ? ['and'] : [])]
  const [left, right] = [leftOf(pieces, at, edges), rightOf(pieces, at, edges)]
  const middle = pieces.slice(at, at + 1)
  if (left.some(({ text }) => text === 'between')) return []
  return [
    ...(right.length > 0 ? [change(`${word} left only`, around([...middle, ...right]), '')] : []),
    ...(left.length > 0 ? [change(`${word} right only`, around([...left, ...middle]), '')] : []),
  ]
}

function rightOf(pieces: readonly Piece[], at: number, edges: readonly string[]): readonly Piece[] {
  const rest = pieces.slice(at + 1)
  const end = rest.findIndex(({ text }) => edges.includes(text))
  return end < 0 ? rest : rest.slice(0, end)
}

function leftOf(pieces: readonly Piece[], at: number, edges: readonly string[]): readonly Piece[] {
  const rest = pieces.slice(0, at)
  return rest.slice(rest.findLastIndex(({ text }) => edges.includes(text)) + 1)
}

/** The arguments of a function. */
function split(pieces: readonly Piece[]): readonly Span[] {
  const commas = [...pieces.entries()].flatMap(([at, { text }]) => (text === ',' ? [at] : []))
  if (commas.length === 0) return []
  return [-1, ...commas].map((at, i) => around(pieces.slice(at + 1, commas[i])))
}

function around(pieces: readonly Piece[]): Span {
  return { start: pieces[0]?.start ?? 0, end: pieces.at(-1)?.end ?? 0 }
}
