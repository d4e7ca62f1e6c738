import { type ESTree, parseSync } from 'rolldown/utils'

export type Node = ESTree.Node

/** A node of a file's syntax tree, types left out. */
export interface Place {
  readonly node: Node
  /** From the file down. */
  readonly parents: readonly Node[]
  /** The names of the functions, variables and properties that it is in, such as `algorithm.sql.fresh`. */
  readonly where: string
}

/** Every node of a TypeScript source, from the top. */
export function placesIn(file: string, source: string): Place[] {
  const { program, errors } = parseSync(file, source)
  const [error] = errors
  if (error) throw new Error(`${file}: ${error.message}`)
  return below(program, [], '')
}

function below(node: Node, parents: readonly Node[], outer: string): Place[] {
  if (isType(node)) return []
  const where = [outer, nameOf(node) ?? ''].filter((each) => each !== '').join('.')
  const deeper = [...parents, node]
  return [{ node, parents, where }, ...childrenOf(node).flatMap((child) => below(child, deeper, where))]
}

/** `x as T` and its like hold an expression, and are not only types. */
function isType(node: Node): boolean {
  return node.type.startsWith('TS') && !('expression' in node)
}

function childrenOf(node: Node): Node[] {
  return Object.values(node).flat().filter(isNode)
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value
}

function nameOf(node: Node): string | undefined {
  switch (node.type) {
    case 'FunctionDeclaration':
    case 'ClassDeclaration':
      return node.id?.name
    case 'VariableDeclarator':
      return node.id.type === 'Identifier' ? node.id.name : undefined
    case 'MethodDefinition':
    case 'PropertyDefinition':
    case 'Property':
      if (node.key.type === 'PrivateIdentifier') return `#${node.key.name}`
      return node.key.type === 'Identifier' ? node.key.name : undefined
    default:
      return undefined
  }
}
