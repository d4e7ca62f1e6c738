import { type Html, html } from './html.ts'
import { href, type Looking } from './layout.ts'
import type { Limit } from './limit.ts'

/** A key as an address names it: as it was typed, or as the hash that is stored. */
export interface NamedKey {
  readonly text: string
  /** Of a hash, what tells the limits with the same secret: their `hashedBy`. */
  readonly hashedBy?: string | undefined
}

/** What is sealed for an address. */
export function sealable({ text, hashedBy }: NamedKey): string {
  return hashedBy === undefined ? KEY + text : `${HASHED}${hashedBy} ${text}`
}

/** The key that was sealed. Undefined for another text. */
export function keyIn(opened: string | undefined): NamedKey | undefined {
  if (opened?.startsWith(KEY)) return { text: opened.slice(KEY.length) }
  const [, hashedBy, text] = (opened?.startsWith(HASHED) && /^\S+ (\w+) (.*)$/s.exec(opened)) || []
  return text === undefined ? undefined : { text, hashedBy }
}

const KEY = 'key '
const HASHED = 'hash '

/** A link to a stored key. The address has the key sealed, so no access log has it. */
export async function keyLink(limit: Limit, key: string, { seal }: Looking): Promise<Html> {
  const id = await seal(sealable({ text: key, hashedBy: await limit.hashedBy() }))
  return html`<a class="key" href="${href({ limit: limit.name, id })}">${key}</a>`
}
