// Rules that change the text of a line, the SQL in templates included. A line of prose, of types or of imports
// is left alone: nothing would change.

/** What becomes of a part of a line. */
export interface Rule {
  readonly name: string
  readonly find: RegExp
  readonly replace: string
}

const SWAPS: readonly (readonly [string, string])[] = [
  [' <= ', ' < '],
  [' < ', ' <= '],
  [' >= ', ' > '],
  [' > ', ' >= '],
  [' + ', ' - '],
  [' - ', ' + '],
  [' * ', ' / '],
  [' / ', ' * '],
  [' && ', ' || '],
  [' || ', ' && '],
  [' and ', ' or '],
  [' or ', ' and '],
  [' === ', ' !== '],
  [' !== ', ' === '],
  ['least(', 'greatest('],
  ['greatest(', 'least('],
  ['Math.min(', 'Math.max('],
  ['Math.max(', 'Math.min('],
  ['ceil(', 'floor('],
  ['floor(', 'ceil('],
  ['is null', 'is not null'],
  ['is not null', 'is null'],
  ['skipLocked: true', ''],
  ['not true', 'true'],
  [' desc', ' asc'],
  ['asc(', 'desc('],
  [' n--', ' n++'],
  ['offset 0', ''],
]

const IN_A_LINE: readonly Rule[] = SWAPS.map(([from, to]) => ({
  name: `${from.trim()} to ${to.trim() || 'nothing'}`,
  find: new RegExp(from.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`), 'g'),
  replace: to,
}))

const WHOLE_LINES: readonly Rule[] = [
  {
    name: 'never',
    find: /\bif \((?=.*\) (return|continue|break|throw|this|first)\b)/g,
    replace: 'if (false && ',
  },
  {
    name: 'left out',
    find: /^ +(this\.#?[\w.]+(\(.*\)| [-+]?= .*|\+\+|--)|isSettled = .*|deleted \+= .*)$/g,
    replace: '',
  },
]

export const RULES: readonly Rule[] = [...IN_A_LINE, ...WHOLE_LINES]

const IS_PROSE =
  /^\s*(\*|\/\*|\/\/|import |} from |export type |type |readonly \w+\??: [A-Z<(]|throw |[A-Z_]+: ['`"]|'|`|"|\| '|[?:] ['`])/
const OPENS_TYPES = /^(export )?(interface|type) .*[{=]$/
const OPENS_IMPORT = /^import \{$/

/** The numbers of the lines that hold code, from 0. */
export function linesOfCode(lines: readonly string[]): readonly number[] {
  let until: RegExp | undefined
  return [...lines.entries()].flatMap(([i, line]) => {
    if (until) {
      if (until.test(line)) until = undefined
      return []
    }
    if (OPENS_TYPES.test(line)) until = /^(}|$)/
    if (OPENS_IMPORT.test(line)) until = /^}/
    return until || IS_PROSE.test(line) ? [] : [i]
  })
}
