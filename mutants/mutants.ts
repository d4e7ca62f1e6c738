import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { parseSync } from 'rolldown/utils'
import { changesAt, type Node, type Place } from './rules.ts'

/** A source file with one mistake in it. */
export interface Mutant {
  readonly file: string
  /** The innermost function around it. */
  readonly within: string
  readonly source: string
  readonly shown: string
}

/** The mutants of a file, a folder, or a line such as src/kernel/duration.ts:12. */
export function mutantsAt(path: string): readonly Mutant[] {
  const [place = '', line] = path.split(':')
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', place], { encoding: 'utf8' })
  const sources = files.split('\n').filter((file) => /^src\/.*\.ts$/.test(file))
  return sources.flatMap(mutantsOf).filter(({ shown }) => line === undefined || shown.startsWith(`${path} `))
}

function mutantsOf(file: string): readonly Mutant[] {
  const text = readFileSync(file, 'utf8')
  return placesIn(file, text).flatMap((place) =>
    changesAt(place, text).map((change) => {
      const line = text.slice(0, change.start).split('\n').length
      const [before, after] = [text.slice(change.start, change.end), change.text].map(short)
      const source = text.slice(0, change.start) + change.text + text.slice(change.end)
      return { file, within: place.within, source, shown: `${file}:${line} ${before} -> ${after}` }
    }),
  )
}

function short(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, 80) || 'nothing'
}

/** Every node of a TypeScript source, from the top. */
function placesIn(file: string, source: string): readonly Place[] {
  const { program, errors } = parseSync(file, source)
  if (errors[0]) throw new Error(`${file}: ${errors[0].message}`)
  return below(program, [], `${file}:`)

  function below(node: Node, parents: readonly Node[], around: string): Place[] {
    // `x as T` and its like hold an expression, and are not only types.
    if (node.type.startsWith('TS') && !('expression' in node)) return []
    const name = nameOf(node) ?? nameOf(parents.at(-1))
    const within = /Function/.test(node.type) && name !== undefined ? `${file}:${name}` : around
    const children = Object.values(node).flat().filter(isNode)
    const deeper = [...parents, node]
    return [{ node, parents, within }, ...children.flatMap((child) => below(child, deeper, within))]
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value
}

function nameOf(node: Node | undefined): string | undefined {
  if (!node) return undefined
  const name = ('id' in node && node.id) || ('key' in node && node.key) || node
  return 'name' in name && typeof name.name === 'string' ? name.name : undefined
}
