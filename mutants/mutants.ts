import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'rolldown/utils'
import { changesAt, type Node, type Place } from './rules.ts'

/** A source file with one mistake in it. */
export interface Mutant extends Pick<Place, 'id'> {
  readonly file: string
  readonly source: string
  readonly shown: string
}

/** The mutants of a file, a folder, or a line such as src/kernel/duration.ts:12. */
export function mutantsAt(path: string): readonly Mutant[] {
  const [place = '', line] = path.split(':')
  const all = sourcesAt(place).flatMap(mutantsOf)
  return all.filter(({ shown }) => line === undefined || shown.startsWith(`${path} `))
}

export function sourcesAt(path: string): readonly string[] {
  const all = readdirSync('src', { recursive: true, encoding: 'utf8' }).map((file) => join('src', file))
  return all.filter((file) => file.endsWith('.ts') && join(file, '/').startsWith(join(path, '/'))).sort()
}

function mutantsOf(file: string): readonly Mutant[] {
  const text = readFileSync(file, 'utf8')
  return placesIn(file, text).flatMap((place) =>
    changesAt(place, text).map((change) => {
      const line = text.slice(0, change.start).split('\n').length
      const short = (each: string) => each.replaceAll(/\s+/g, ' ').trim().slice(0, 80) || 'nothing'
      const [before, after] = [text.slice(change.start, change.end), change.text].map(short)
      const source = text.slice(0, change.start) + change.text + text.slice(change.end)
      return { file, id: place.id, source, shown: `${file}:${line} ${before} -> ${after}` }
    }),
  )
}

/** Every node of a TypeScript source, from the top. */
export function placesIn(file: string, source: string): readonly Place[] {
  const { program, errors } = parseSync(file, source)
  if (errors[0]) throw new Error(`${file}: ${errors[0].message}`)
  return below(program, [])

  function below(node: Node, parents: readonly Node[]): Place[] {
    // `x as T` and its like hold an expression, and are not only types.
    if (node.type.startsWith('TS') && !('expression' in node)) return []
    const { start, end } = parents.at(-1) ?? node
    const text = [file, source.slice(start, end), node.start - start].join()
    const id = createHash('sha256').update(text).digest('base64url').slice(0, 8)
    const isNode = (value: unknown): value is Node =>
      typeof value === 'object' && value !== null && 'type' in value && 'start' in value
    const children = Object.values(node).flat().filter(isNode)
    return [{ node, parents, id }, ...children.flatMap((child) => below(child, [...parents, node]))]
  }
}
