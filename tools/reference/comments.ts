import type { Node } from 'typescript/unstable/ast'

/** What a doc comment says, each in one line. */
export interface Comment {
  /** The first paragraph. */
  readonly summary: string
  readonly text: string
  /** The errors, of calls. */
  readonly throws: string
}

const comments = new WeakMap<Node, Comment>()

export function commentOf(node: Node): Comment {
  const comment = comments.get(node) ?? readComment(node)
  comments.set(node, comment)
  return comment
}

function readComment(node: Node): Comment {
  const [source = ''] = /\/\*\*(?:(?!\/\*\*)[\s\S])*$/.exec(node.jsDoc?.at(-1)?.getText() ?? '') ?? []
  const [text = '', ...tags] = source
    .replaceAll(/^\s*\/?\*+ ?|\s*\*\/$/gm, '')
    .replaceAll(/\{@link ([\w.]+)\}/g, '`$1`')
    .split(/^(?=@)/m)
  const throws = tags.find((tag) => tag.startsWith('@throws')) ?? ''
  return { summary: inLine(text.split('\n\n')[0]), text: inLine(text), throws: errorsIn(inLine(throws)) }
}

function errorsIn(tag: string): string {
  const errors = tag.replace('@throws The', 'the').replaceAll(/@throws |RatelimitError /g, '')
  return errors && `Throws ${errors.replace(/\.?$/, '.')}`
}

export function inLine(text = ''): string {
  return text.trim().replaceAll(/\s+/g, ' ')
}

/** The declaration whose comment says most: of overloads the one that names the errors. */
export function mostDocumented(nodes: readonly Node[]): Node | undefined {
  const weight = (node: Node) => {
    const { throws, text } = commentOf(node)
    return throws.length * 1000 + text.length
  }
  return nodes.toSorted((a, b) => weight(b) - weight(a))[0]
}

/** The first sentences of a text, as many as have this number of words together, and the default in it. */
export function brief(text: string, words: number): string {
  const [meaning = '', byDefault = ''] = text.split(/ ?(?=Default: )/)
  const sentences = meaning.split(/(?<=\.) (?=[A-Z0-9`'])/)
  const [first = '', ...others] = sentences
  let short = first
  for (const sentence of others) {
    if (`${short} ${sentence}`.split(' ').length > words) break
    short = `${short} ${sentence}`
  }
  return `${short} ${byDefault}`.trim()
}
