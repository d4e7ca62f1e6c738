import { resolve } from 'node:path'
import type { Node } from 'typescript/unstable/ast'
import * as is from 'typescript/unstable/ast/is'
import {
  API,
  type Checker,
  SignatureKind,
  SymbolFlags,
  type Symbol as TypeSymbol,
} from 'typescript/unstable/sync'
import { ENTRIES } from '../../test/support/entries.ts'
import { mostDocumented } from './comments.ts'
import { isPossible } from './declarations.ts'

/** Something that an entry exports. */
export interface Export {
  readonly name: string
  readonly node: Node
  /** What it is: a class, a function or constant, a type that callers give, or another type. */
  readonly kind: 'class' | 'call' | 'given' | 'type'
  /** Of classes and types: each property or method, with its declarations. */
  readonly members: readonly Member[]
  /** Of classes: the static functions. */
  readonly statics: readonly Member[]
}

interface Member {
  readonly name: string
  readonly nodes: readonly Node[]
}

const KINDS = ['class', 'call', 'given', 'type'] as const

/** What each entry exports: classes first, and types last. */
export function exportsOfEntries(): ReadonlyMap<string, readonly Export[]> {
  const api = new API({ cwd: resolve('.') })
  try {
    const [project] = api.updateSnapshot({ openProjects: [resolve('tsconfig.build.json')] }).getProjects()
    if (!project) throw new Error('The compiler has opened no project.')
    const { checker, program } = project
    const entries = [...ENTRIES].map(([entry, file]) => {
      const source = program.getSourceFile(resolve(file))
      const module = source && checker.getSymbolAtLocation(source)
      if (!module) throw new Error(`${file} is no module.`)
      const all = checker.getExportsOfModule(module).map((each) => exportOf(checker, each))
      return [entry, all.toSorted(inOrder)] as const
    })
    return new Map(entries)
  } finally {
    api.close()
  }
}

function inOrder(a: Export, b: Export): number {
  return KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || a.name.localeCompare(b.name)
}

function exportOf(checker: Checker, exported: TypeSymbol): Export {
  const { name } = exported
  const symbol = exported.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported
  const node = mostDocumented(nodesOf(symbol))
  if (!node) throw new Error(`${name} has no declaration.`)
  const kind = kindOf(name, node)
  const properties =
    kind === 'call' ? [] : checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol))
  const all = properties.map((each) => ({ name: each.name, nodes: nodesOf(each) }))
  const members = all.filter(({ nodes }) => nodes.some(isPossible)).toSorted(byPlace(fileOf(node)))
  return { name, node, kind, members, statics: kind === 'class' ? staticsOf(checker, symbol) : [] }
}

function kindOf(name: string, node: Node): Export['kind'] {
  if (is.isClassDeclaration(node)) return 'class'
  if (!is.isInterfaceDeclaration(node) && !is.isTypeAliasDeclaration(node)) return 'call'
  return /(Options|Config|Request|Terms|Once)$/.test(name) ? 'given' : 'type'
}

/** Those of the file first. The order of the compiler changes with what it has read before. */
function byPlace(first: string): (one: Member, other: Member) => number {
  return ({ nodes: [one] }, { nodes: [other] }) => {
    if (!one || !other) return 0
    const [file, otherFile] = [fileOf(one), fileOf(other)]
    if (file === otherFile) return one.pos - other.pos
    return file === first || (otherFile !== first && file < otherFile) ? -1 : 1
  }
}

function fileOf(node: Node): string {
  return node.getSourceFile().fileName
}

function staticsOf(checker: Checker, symbol: TypeSymbol): Member[] {
  return [...symbol.getExports().values()].flatMap((each) => {
    const type = checker.getTypeOfSymbol(each)
    const [call] = type ? checker.getSignaturesOfType(type, SignatureKind.Call) : []
    const node = call?.declaration?.resolve()
    return node && is.isFunctionDeclaration(node) ? [{ name: each.name, nodes: [node] }] : []
  })
}

function nodesOf(symbol: TypeSymbol): Node[] {
  const nodes = symbol.declarations.map((each) => each.resolve()).filter((node) => node !== undefined)
  return [...new Set(nodes)]
}
