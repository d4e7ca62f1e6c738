import type { Node } from 'typescript/unstable/ast'
import * as is from 'typescript/unstable/ast/is'
import { brief, commentOf, inLine } from './comments.ts'

// What a declaration is, as a line of the reference.

/** The most words that say what a call does, and what an option or a field means. */
const WORDS = { call: 30, member: 20 }

/** Whether a member is the package's own, and can have a value in one of the types of a union. */
export function isPossible(node: Node): boolean {
  return (
    !node.getSourceFile().fileName.includes('/node_modules/') && !/^(never|undefined)$/.test(typeOf(node))
  )
}

export function callOf(name: string, node: Node): string {
  const { summary, throws } = commentOf(node)
  return `${code(`${name}(${parametersOf(node)}): ${typeOf(node)}`)}. ${brief(summary, WORDS.call)} ${throws}`
}

export function parametersOf(node: Node): string {
  const parameters = 'parameters' in node ? (node.parameters as readonly Node[]) : []
  return parameters.map((each) => plain(each.getText()).replace(/^(\w+): (.*) = .*$/, '$1?: $2')).join(', ')
}

export function memberOf(name: string, node: Node, nodes: readonly Node[]): string {
  if (is.isMethodDeclaration(node) || is.isMethodSignatureDeclaration(node)) return callOf(name, node)
  const isOptional = nodes.some((each) => is.isPropertySignatureDeclaration(each) && each.postfixToken)
  const types = nodes.filter(isPossible).map(typeOf)
  const type = unionOf(new Set(isOptional ? types.map((each) => each.replace(/ \| undefined$/, '')) : types))
  return `${code(`${name}${isOptional ? '?' : ''}: ${type}`)}. ${brief(commentOf(node).text, WORDS.member)}`
}

function unionOf(types: Set<string>): string {
  const isEither = types.has('boolean') || (types.has('true') && types.has('false'))
  const isWithin = (type: string) => [...types].some((other) => other.startsWith(`${type} | `))
  const others = [...types].filter(
    (type) => !isWithin(type) && (!isEither || !/^(boolean|true|false)$/.test(type)),
  )
  return [...(isEither ? ['boolean'] : []), ...others].join(' | ')
}

export function typeOf(node: Node): string {
  const type = 'type' in node && node.type ? node.type : 'initializer' in node ? node.initializer : undefined
  return plain((type as Node | undefined)?.getText()).replace(/ as const$/, '')
}

function plain(source = ''): string {
  return inLine(source.replaceAll(/\/\*\*.*?\*\//gs, ''))
    .replaceAll('readonly ', '')
    .replace(/^\| /, '')
}

export function code(text: string): string {
  return text.includes('`') ? `\`\` ${text} \`\`` : `\`${text}\``
}
