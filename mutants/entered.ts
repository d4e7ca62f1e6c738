import { readFileSync } from 'node:fs'
import { relative } from 'node:path'
import type { Change } from './change.ts'
import { type Node, type Place, placesIn } from './walk.ts'

declare global {
  /** The functions that the test file which runs now has entered. */
  var entered: Set<string> | undefined
}

/** Such as `src/index.ts:name`. Functions of one name in a file are numbered, from the second. */
export type Entered = string

type Function = Extract<
  Node,
  { type: 'FunctionDeclaration' | 'FunctionExpression' | 'ArrowFunctionExpression' }
>

/** The functions of a source, with their names. */
export function functionsIn(file: string, places: readonly Place[]): ReadonlyMap<Node, Entered> {
  const times = new Map<string, number>()
  return new Map(
    places.flatMap(({ node, where }) => {
      if (!isFunction(node)) return []
      const nth = (times.get(where) ?? 0) + 1
      times.set(where, nth)
      return [[node, `${file}:${where}${nth > 1 ? ` #${nth}` : ''}`]]
    }),
  )
}

/** The innermost function around a place, if it is in one. */
export function functionAround(
  { parents }: Pick<Place, 'parents'>,
  functions: ReadonlyMap<Node, Entered>,
): Entered | undefined {
  const around = parents.findLast(isFunction)
  return around && functions.get(around)
}

export function fileOf(entered: Entered): string {
  return entered.slice(0, entered.indexOf(':'))
}

/** The source with a note at the start of each function. No line moves. */
export function noting(file: string, source: string): string {
  const functions = functionsIn(file, placesIn(file, source))
  const notes = [...functions].flatMap(([node, name]) => (isFunction(node) ? notesIn(node, name) : []))
  return notes
    .toSorted((one, other) => other.start - one.start)
    .reduce((text, { start, text: note }) => text.slice(0, start) + note + text.slice(start), source)
}

function notesIn({ body }: Function, name: Entered): readonly Pick<Change, 'start' | 'text'>[] {
  if (!body) return []
  const note = `globalThis.entered?.add(${JSON.stringify(name)})`
  if (body.type === 'BlockStatement') return [{ start: body.start + 1, text: `${note};` }]
  return [
    { start: body.start, text: `(${note},` },
    { start: body.end, text: ')' },
  ]
}

/** For Vite. */
export const notes: {
  readonly name: string
  readonly enforce: 'pre'
  transform(code: string, id: string): string | undefined
} = {
  name: 'notes',
  enforce: 'pre',
  transform(_, id) {
    const file = relative('', id)
    return /^src\/.*\.ts$/.test(file) ? noting(file, readFileSync(file, 'utf8')) : undefined
  },
}

function isFunction(node: Node): node is Function {
  return /^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(node.type)
}
