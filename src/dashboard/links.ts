import { type Html, html } from './html.ts'
import { href, type Looking } from './layout.ts'
import type { Limit } from './limit.ts'

/** A key as an address names it: as it was typed, or as the hash that is stored. */
export interface NamedKey {
  readonly text: string
  readonly isHash: boolean
}

/** What is sealed for an address. */
export function sealable({ text, isHash }: NamedKey): string {
  return `${isHash ? HASH : KEY}${text}`
}

/** The key that was sealed. Undefined for another text. */
export function keyIn(opened: string | undefined): NamedKey | undefined {
  if (opened?.startsWith(KEY)) return { text: opened.slice(KEY.length), isHash: false }
  return opened?.startsWith(HASH) ? { text: opened.slice(HASH.length), isHash: true } : undefined
}

const KEY = 'key '
const HASH = 'hash '

/** A link to a stored key. The address has the key sealed, so no access log has it. */
export async function keyLink(limit: Limit, key: string, { seal }: Looking): Promise<Html> {
  const id = await seal(sealable({ text: key, isHash: limit.isHashed }))
  return html`<a class="key" href="${href({ limit: limit.name, id })}">${key}</a>`
}
