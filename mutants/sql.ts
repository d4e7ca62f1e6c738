import { type Change, change, doubled, otherOperators, type Span, swaps, withoutOne } from './change.ts'

/** A word, a number, an operator or a placeholder in SQL. */
interface Word extends Span {
  readonly text: string
  /** How many brackets and cases it is in. */
  readonly depth: number
}

const WORD = /'[^']*'|\$+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|[a-z_]\w*|::|<=|>=|<>|!=|\|\||->>?|\S/gi

const OTHERS = swaps({
  ...{ floor: 'ceil', ceil: 'floor', round: 'floor', min: 'max', max: 'min' },
  ...{ asc: 'desc', desc: 'asc', true: 'false', false: 'true', clock_timestamp: 'now' },
})

/** Words that end an expression. */
const CLAUSES: readonly string[] =
  `, ; when then else where on from join left cross as set returning select with order group limit offset for
  union do`.split(/\s+/)

/** What can be wrong in SQL. */
export function sqlChanges(sql: Span, placeholders: readonly Span[], source: string): readonly Change[] {
  const words = wordsIn(sql, placeholders, source)
  return words.flatMap((word, at) => changesAt(words, word, at))
}

function changesAt(words: readonly Word[], word: Word, at: number): readonly Change[] {
  const { text, depth } = word
  const [before, after] = [words[at - 1], words[at + 1]]
  const right = (...edges: string[]) => upTo(edges, depth, words.slice(at + 1))
  const left = (...edges: string[]) => upTo(edges, depth, words.slice(0, at).toReversed()).toReversed()
  const other = OTHERS.get(text)
  if (/^\d/.test(text)) return [change(word, doubled(Number(text)))]
  if (!after || after.depth < depth) return []
  if (other !== undefined) return [change(word, other)]
  if (/^[-+*/%<>=]/.test(text)) {
    const isConditional = (each: Word) => each.depth === depth && /^(and|or|when|where|on)$/.test(each.text)
    const isOperator =
      !before || before.depth < depth || (/^[\w')$]/.test(before.text) && !CLAUSES.includes(before.text))
    return isOperator ? otherOperators(text, word, [...left(), ...right()].some(isConditional)) : []
  }
  switch (text) {
    case 'and':
    case 'or': {
      const edges = [...CLAUSES, 'or', ...(text === 'and' ? ['and'] : [])]
      const [first, second] = [left(...edges), right(...edges)]
      if (first.some((each) => each.text === 'between')) return []
      const without = [second.length > 0 ? [word, ...second] : [], first.length > 0 ? [...first, word] : []]
      return without.flatMap((each) => (each.length > 0 ? [change(around(each), '')] : []))
    }
    case 'where':
      return [change(around([word, ...right(...CLAUSES)]), '')]
    case 'when':
      return ['true', 'false'].map((each) => change(around(right('then')), each))
    case 'least':
    case 'greatest':
    case 'coalesce': {
      const inner = upTo([], depth + 1, words.slice(at + 2))
      const commas = [...inner.keys()].filter((i) => inner[i]?.text === ',' && inner[i]?.depth === depth + 1)
      const all = [-1, ...commas].map((comma, i) => around(inner.slice(comma + 1, commas[i])))
      return commas.length > 0 ? withoutOne(all) : []
    }
    case 'is':
      return after.text === 'null' ? [change(word, 'is not')] : []
    case 'left':
      return after.text === 'join' ? [change(word, '')] : []
    case 'not':
      return before?.text === 'is' || !/^(null|materialized)$/.test(after.text) ? [change(word, '')] : []
    default:
      return []
  }
}

/** The first of them, up to an edge in the same brackets, or to the end of the brackets. */
function upTo(edges: readonly string[], depth: number, words: readonly Word[]): readonly Word[] {
  const isEdge = (each: Word) => each.depth < depth || (each.depth === depth && edges.includes(each.text))
  const end = words.findIndex(isEdge)
  return end < 0 ? words : words.slice(0, end)
}

function around(words: readonly Word[]): Span {
  return { start: words[0]?.start ?? 0, end: words.at(-1)?.end ?? 0 }
}

function wordsIn(sql: Span, placeholders: readonly Span[], source: string): readonly Word[] {
  // A placeholder is a word that is as long as it.
  const text = placeholders.reduce(
    (text, { start, end }) => text.slice(0, start) + '$'.repeat(end - start) + text.slice(end),
    source.slice(0, sql.end - 1),
  )
  let depth = 0
  return [...text.slice(sql.start + 1).matchAll(WORD)].map(({ 0: word, index }) => {
    const start = sql.start + 1 + index
    const lower = word.toLowerCase()
    if (lower === ')' || lower === 'end') depth--
    const placed = { start, end: start + word.length, text: lower, depth }
    if (lower === '(' || lower === 'case') depth++
    return placed
  })
}
