import type { ESTree } from 'rolldown/utils'
import { type Change, change, doubled, otherOperators, type Span, swaps, withoutOne } from './change.ts'
import { sqlChanges } from './sql.ts'

export type Node = ESTree.Node

/** A node of a file's syntax tree, types left out. */
export interface Place {
  readonly node: Node
  readonly parents: readonly Node[]
  /** A hash of the text around it, so that it stays while other lines of the file change. */
  readonly id: string
}

const CALLS = swaps({ floor: 'ceil', ceil: 'floor', round: 'floor', some: 'every', every: 'some' })

/** Functions that can take one argument less. */
const LISTS = /^(min|max|least|greatest|and|or)$/

/** Methods that can be left out: the value that they are called on takes their place. */
const OPTIONAL =
  /^(where|orderBy|limit|for|offset|then|catch|finally|unref|filter|slice|toSorted|toReversed|trim|toLowerCase)$/

/** What can be wrong at a node. */
export function changesAt({ node, parents }: Place, source: string): readonly Change[] {
  const parent = parents.at(-1)
  const instead = ({ start, end }: Span) => change(node, source.slice(start, end))
  const isText = (each: Span) => /^(["'`]).*\1$/s.test(source.slice(each.start, each.end))
  const isRaw = (each: Node | undefined) =>
    each?.type === 'CallExpression' && source.slice(each.start, each.callee.end).endsWith('.raw')
  switch (node.type) {
    case 'BinaryExpression': {
      const { operator, left, right } = node
      if (isText(left) || isText(right)) return []
      const start = source.indexOf(operator, left.end)
      const at = { start, end: start + operator.length }
      return otherOperators(operator, at, isCondition(node, parents))
    }
    case 'LogicalExpression':
      return [instead(node.left), instead(node.right)]
    case 'ConditionalExpression':
      return [instead(node.consequent), instead(node.alternate)]
    case 'UnaryExpression': {
      const isNegation = node.operator === '!' && !isCondition(node, parents)
      const isMinus = node.operator === '-' && node.argument.type !== 'Literal'
      return isNegation || isMinus ? [instead(node.argument)] : []
    }
    case 'IfStatement':
    case 'WhileStatement':
      return (node.type === 'IfStatement' ? ['true', 'false'] : ['false']).map((each) =>
        change(node.test, each),
      )
    case 'AwaitExpression':
      return [instead(node.argument)]
    case 'ExpressionStatement':
      return source.startsWith('super(', node.start) ? [] : [change(node, '{}')]
    case 'ArrayExpression':
      return withoutOne(node.elements)
    case 'CallExpression': {
      const { callee } = node
      const name = callee.type === 'MemberExpression' ? callee.property : callee
      if (name.type !== 'Identifier') return []
      const other = CALLS.get(name.name)
      const isOptional = callee.type === 'MemberExpression' && OPTIONAL.test(name.name)
      return [
        ...(other === undefined ? [] : [change(name, other)]),
        ...(LISTS.test(name.name) && node.arguments.length > 1 ? withoutOne(node.arguments) : []),
        ...(isOptional ? [instead(callee.object)] : []),
      ]
    }
    case 'Literal': {
      const { value } = node
      if (parent?.type === 'Property' && parent.key === node) return []
      if (typeof value === 'string') return isRaw(parent) ? sqlChanges(node, [], source) : []
      if (typeof value === 'boolean') return [change(node, `${!value}`)]
      if (typeof value === 'bigint') return [change(node, `${doubled(Number(value))}n`)]
      return typeof value === 'number' ? [change(node, doubled(value))] : []
    }
    case 'TemplateLiteral': {
      const placeholders = node.expressions.map(({ start, end }) => ({
        start: source.lastIndexOf('${', start),
        end: source.indexOf('}', end) + 1,
      }))
      const isSql = parent?.type === 'TaggedTemplateExpression' || parents.slice(-3).some(isRaw)
      if (isSql) return sqlChanges(node, placeholders, source)
      // A sentence is for people, and may be worded otherwise.
      const isMessage =
        node.quasis.at(-1)?.value.raw.endsWith('.') || parents.some(({ type }) => type === 'NewExpression')
      return isMessage ? [] : placeholders.map((each) => change(each, ''))
    }
    default:
      return []
  }
}

/** Whether it is only asked whether the value is true. Other mutants turn such a value around. */
function isCondition(node: Node, parents: readonly Node[]): boolean {
  const parent = parents.at(-1)
  if (parent?.type === 'ParenthesizedExpression') return isCondition(parent, parents.slice(0, -1))
  if (parent?.type === 'LogicalExpression') return parent.operator !== '??'
  // Those of other loops are not made true and false.
  return parent !== undefined && 'test' in parent && parent.test === node && !/^(For|Do)/.test(parent.type)
}
