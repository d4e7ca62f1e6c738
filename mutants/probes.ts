import type { Span } from './change.ts'
import { placesIn } from './mutants.ts'
import { changesAt, type Place } from './rules.ts'

/** The source, in which each place that has mutants says that it runs. */
export function probed(file: string, source: string): string {
  const [before, after] = [new Map<number, string>(), new Map<number, string>()]
  const add = (to: Map<number, string>, at: number, text: string) => to.set(at, (to.get(at) ?? '') + text)
  for (const place of placesIn(file, source)) {
    if (changesAt(place, source).length === 0) continue
    const { start, end } = probedSpan(place)
    // A line that began with a bracket would go on with the one before.
    const open = place.node.type === 'ExpressionStatement' ? 'void (' : '('
    add(before, start, `${open}globalThis.mutantsReached?.add('${place.id}'), `)
    add(after, end, ')')
  }
  const edges = [...new Set([0, ...before.keys(), ...after.keys()])].toSorted((one, other) => one - other)
  return edges
    .map((at, i) => (after.get(at) ?? '') + (before.get(at) ?? '') + source.slice(at, edges[i + 1]))
    .join('')
}

/** The expression that a probe can stand in front of. */
function probedSpan({ node, parents }: Place): Span {
  if (node.type === 'ExpressionStatement') return node.expression
  if (node.type === 'IfStatement' || node.type === 'WhileStatement') return node.test
  const parent = parents.at(-1)
  if (node.type === 'TemplateLiteral' && parent?.type === 'TaggedTemplateExpression') return parent
  // The rest of a chain such as `a?.b().c()` is left out with its beginning.
  const end = parents.findLastIndex(({ type }) => !/^(Call|Member|TSNonNull)/.test(type))
  const chain = parents[end]
  return chain?.type === 'ChainExpression' && node.start === chain.start ? chain : node
}
