import type { ESTree } from 'rolldown/utils'
import { type Change, change, doubled, otherOperators, type Span, swaps, withoutOne } from './change.ts'
import { sqlChanges } from './sql.ts'
import type { Node, Place } from './walk.ts'

/** One function for another. */
const CALLS = swaps({ floor: 'ceil', ceil: 'floor', round: 'floor', some: 'every', every: 'some' })

/** Functions that can take one argument less. */
const LISTS: readonly string[] = ['min', 'max', 'least', 'greatest', 'and', 'or']

/** Methods that can be left out: the value that they are called on takes their place. */
const OPTIONAL: readonly string[] = [
  ...['where', 'orderBy', 'limit', 'for', 'offset'],
  ...['then', 'catch', 'finally', 'unref'],
  ...['filter', 'slice', 'toSorted', 'toReversed', 'trim', 'toLowerCase'],
]

/** What can be wrong at a node. */
export function changesAt({ node, parents }: Place, source: string): readonly Change[] {
  const parent = parents.at(-1)
  const instead = (kind: string, { start, end }: Span) => change(kind, node, source.slice(start, end))
  switch (node.type) {
    case 'BinaryExpression':
      return operator(node, isCondition(node, parents), source)
    case 'LogicalExpression': {
      const word = node.operator
      return [instead(`${word} left only`, node.left), instead(`${word} right only`, node.right)]
    }
    case 'ConditionalExpression':
      return [instead('? first only', node.consequent), instead('? second only', node.alternate)]
    case 'UnaryExpression': {
      const isNegation = node.operator === '!' && !isCondition(node, parents)
      const isMinus = node.operator === '-' && node.argument.type !== 'Literal'
      return isNegation || isMinus ? [instead(`no ${node.operator}`, node.argument)] : []
    }
    case 'IfStatement':
      return [change('if always', node.test, 'true'), change('if never', node.test, 'false')]
    case 'WhileStatement':
      return [change('while never', node.test, 'false')]
    case 'AwaitExpression':
      return [instead('no await', node.argument)]
    case 'ExpressionStatement':
      return isSuper(node.expression) ? [] : [change('no statement', node, '{}')]
    case 'ArrayExpression':
      return withoutOne('list lacks one', node.elements)
    case 'CallExpression':
      return called(node, source)
    case 'Literal':
      if (parent?.type === 'Property' && parent.key === node) return []
      return typeof node.value === 'string' && isRaw(parent) ? sqlChanges(node, source) : literal(node)
    case 'TemplateLiteral':
      if (parent?.type === 'TaggedTemplateExpression' || parents.slice(-3).some(isRaw))
        return sqlChanges(node, source)
      return isMessage(node, parents) ? [] : withoutPlaceholder(node, source)
    default:
      return []
  }
}

function operator(
  { operator, left, right }: ESTree.BinaryExpression | ESTree.PrivateInExpression,
  isInCondition: boolean,
  source: string,
): readonly Change[] {
  if (isText(left) || isText(right)) return []
  const start = source.indexOf(operator, left.end)
  return otherOperators(operator, { start, end: start + operator.length }, isInCondition)
}

/** Whether it is only asked whether the value is true. Other mutants turn such a value around. */
function isCondition(node: Node, parents: readonly Node[]): boolean {
  const parent = parents.at(-1)
  switch (parent?.type) {
    case 'ParenthesizedExpression':
      return isCondition(parent, parents.slice(0, -1))
    case 'LogicalExpression':
      return parent.operator !== '??'
    case 'IfStatement':
    case 'WhileStatement':
    case 'ConditionalExpression':
      return parent.test === node
    default:
      return false
  }
}

function literal(node: Extract<Node, { type: 'Literal' }>): readonly Change[] {
  const { value } = node
  if (typeof value === 'boolean') return [change(`${value} to ${!value}`, node, `${!value}`)]
  if (typeof value === 'number') return [change('number', node, doubled(value))]
  return typeof value === 'bigint' ? [change('number', node, `${doubled(Number(value))}n`)] : []
}

function called(node: ESTree.CallExpression, source: string): readonly Change[] {
  const { callee } = node
  const name = callee.type === 'MemberExpression' ? callee.property : callee
  if (name.type !== 'Identifier') return []
  const other = CALLS.get(name.name)
  const isList = LISTS.includes(name.name) && node.arguments.length > 1
  const isOptional = callee.type === 'MemberExpression' && OPTIONAL.includes(name.name)
  return [
    ...(other === undefined ? [] : [change(`${name.name} to ${other}`, name, other)]),
    ...(isList ? withoutOne(`${name.name} lacks one`, node.arguments) : []),
    ...(isOptional
      ? [change(`no ${name.name}`, node, source.slice(callee.object.start, callee.object.end))]
      : []),
  ]
}

function withoutPlaceholder(node: ESTree.TemplateLiteral, source: string): readonly Change[] {
  return node.expressions.map(({ start, end }) =>
    change(
      'no placeholder',
      { start: source.lastIndexOf('${', start), end: source.indexOf('}', end) + 1 },
      '',
    ),
  )
}

/** A sentence is for people, and may be worded otherwise. */
function isMessage({ quasis }: ESTree.TemplateLiteral, parents: readonly Node[]): boolean {
  return quasis.at(-1)?.value.raw.endsWith('.') || parents.some(({ type }) => type === 'NewExpression')
}

/** `sql.raw(...)` */
function isRaw(node: Node | undefined): boolean {
  if (node?.type !== 'CallExpression' || node.callee.type !== 'MemberExpression') return false
  return node.callee.property.type === 'Identifier' && node.callee.property.name === 'raw'
}

function isText(node: Node): boolean {
  return node.type === 'TemplateLiteral' || (node.type === 'Literal' && typeof node.value === 'string')
}

function isSuper(node: Node): boolean {
  return node.type === 'CallExpression' && node.callee.type === 'Super'
}
