import { format, resolveConfig } from 'prettier'
import type { Node } from 'typescript/unstable/ast'
import * as is from 'typescript/unstable/ast/is'
import { HELP } from '../../src/cli/help.ts'
import { commentOf, mostDocumented } from './comments.ts'
import { callOf, code, isPossible, memberOf, parametersOf, typeOf } from './declarations.ts'
import { type Export, exportsOfEntries } from './exports.ts'

// The pages of the reference, from the doc comments of what the package exports: `npm run reference`.

/** The pages in docs/, and what they say. */
export async function referencePages(): Promise<ReadonlyMap<string, string>> {
  const pages = new Reference(exportsOfEntries()).pages()
  const style = { ...(await resolveConfig('README.md')), parser: 'markdown' }
  const texts = [...pages].map(async ([file, text]) => [file, await format(text, style)] as const)
  return new Map(await Promise.all(texts))
}

const MAIN = 'drizzle-ratelimit'

/** The pages of the main entry. */
const PARTS = {
  class: { file: MAIN, title: `\`${MAIN}\`` },
  call: { file: MAIN, title: `\`${MAIN}\`` },
  given: { file: `${MAIN}-options`, title: `Options of \`${MAIN}\`` },
  type: { file: `${MAIN}-answers`, title: `Answers and other types of \`${MAIN}\`` },
} as const

interface Page {
  readonly file: string
  readonly title: string
}

function pageOf(entry: string, { kind }: Export): Page {
  return entry === MAIN ? PARTS[kind] : { file: entry.replace(`${MAIN}/`, ''), title: `\`${entry}\`` }
}

class Reference {
  readonly #entries: ReadonlyMap<string, readonly Export[]>
  readonly #pages = new Map<Export, Page>()
  /** Where each exported declaration is described, and each member of a type that is not exported. */
  readonly #places = new Map<string, Export>()

  constructor(entries: ReadonlyMap<string, readonly Export[]>) {
    this.#entries = entries
    for (const [entry, exports] of entries) {
      for (const each of exports) {
        this.#pages.set(each, pageOf(entry, each))
        this.#placeOf(each.node, each)
      }
    }
    // What several types have is described at the largest of them.
    const bySize = (a: Export, b: Export) => b.members.length - a.members.length
    for (const exports of entries.values()) for (const each of exports.toSorted(bySize)) this.#membersOf(each)
  }

  pages(): ReadonlyMap<string, string> {
    const commands = `# Commands\n\n\`\`\`text\n${HELP}\n\`\`\`\n`
    const texts = new Map([
      ['reference.md', this.#index()],
      ['reference/commands.md', commands],
    ])
    for (const [each, { file, title }] of this.#pages) {
      const path = `reference/${file}.md`
      texts.set(path, `${texts.get(path) ?? `# ${title}`}\n\n## ${each.name}\n\n${this.#describe(each)}`)
    }
    return texts
  }

  #index(): string {
    const entries = [...this.#entries].map(([entry, exports]) => {
      const calls = exports.filter(({ kind }) => kind === 'class' || kind === 'call')
      const names = calls.map(({ name }) => `\`${name}\``).join(', ')
      const { file = '' } = (exports[0] && this.#pages.get(exports[0])) ?? {}
      return `- [\`${entry}\`](reference/${file}.md): ${names}`
    })
    const parts = [PARTS.given, PARTS.type].map(({ file, title }) => `- [${title}](reference/${file}.md)`)
    return `# Reference

What each entry of the package exports. The doc comments say more about each, and have examples.
[Options](options.md#what-cannot-be-combined) has what cannot be combined, and [errors](errors.md) what each
code means.

${[...entries, ...parts, '- [Commands](reference/commands.md) of `npx drizzle-ratelimit`'].join('\n')}
`
  }

  #describe(each: Export): string {
    const { name, node } = each
    const place = this.#placeOf(node, each)
    if (place !== each) return `See ${this.#linkTo(place, each)}.`
    if (is.isFunctionDeclaration(node)) return callOf(name, node)
    if (each.kind === 'call') return commentOf(node.parent.parent).summary
    const members = [...callsOf(each), ...this.#membersOf(each)].join('\n')
    return `${commentOf(node).summary}\n\n${members || code(typeOf(node))}`
  }

  #membersOf(each: Export): string[] {
    const own: string[] = []
    const others = new Map<Export, string[]>()
    for (const { name, nodes } of each.members) {
      const node = mostDocumented(nodes.filter(isPossible))
      if (!node?.jsDoc || name.startsWith('__')) continue
      const owner = ownerOf(node)
      const exported = owner && owner !== each.node ? this.#places.get(keyOf(owner)) : undefined
      const place = exported ?? this.#placeOf(node, each)
      if (place === each) own.push(`- ${memberOf(name, node, nodes)}`)
      else others.set(place, [...(others.get(place) ?? []), `\`${name}\``])
    }
    if (own.length === 0 && each.kind === 'type' && is.isTypeAliasDeclaration(each.node)) return []
    const links = [...others].map(([place, names]) => `- ${names.join(', ')} of ${this.#linkTo(place, each)}`)
    return [...own, ...links]
  }

  /** Where a declaration is described. If it is nowhere yet, that is the given place. */
  #placeOf(node: Node, given: Export): Export {
    const known = this.#places.get(keyOf(node)) ?? given
    this.#places.set(keyOf(node), known)
    return known
  }

  #linkTo(place: Export, from: Export): string {
    const [there, here] = [this.#pages.get(place)?.file, this.#pages.get(from)?.file]
    return `[${place.name}](${there === here ? '' : `${there}.md`}#${place.name.toLowerCase()})`
  }
}

/** The constructor of a class, and its static functions. */
function callsOf({ name, node, statics }: Export): string[] {
  if (!is.isClassDeclaration(node)) return []
  const made = node.members.find(is.isConstructorDeclaration)
  const calls = statics.flatMap((each) => each.nodes.map((call) => callOf(`${name}.${each.name}`, call)))
  const all = made ? [`\`new ${name}(${parametersOf(made)})\`. ${commentOf(node).throws}`, ...calls] : calls
  return all.map((call) => `- ${call}`)
}

/** The same for the same declaration. */
function keyOf(node: Node): string {
  return `${node.getSourceFile().fileName}:${node.pos}`
}

/** The interface, class or type that a member is declared in. */
function ownerOf(node: Node): Node | undefined {
  let at: Node | undefined = node.parent
  while (at && !is.isInterfaceDeclaration(at) && !is.isTypeAliasDeclaration(at) && !is.isClassDeclaration(at))
    at = at.parent
  return at
}
