import { type Html, html } from './html.ts'
import { href, type Looking } from './layout.ts'
import type { Limit } from './limit.ts'
import type { Seals } from './seal.ts'

/** A key as an address names it: as it was typed, or as the hash that is stored. */
export interface NamedKey {
  readonly text: string
  /** Of a hash, what tells the limits with the same secret: their `hashedBy`. */
  readonly hashedBy?: string | undefined
}

/** What names the key in addresses: sealed, so that no access log has it. */
export function idOf({ text, hashedBy }: NamedKey, seals: Seals): Promise<string> {
  return hashedBy === undefined ? seals.seal('key', text) : seals.seal('hash', `${hashedBy} ${text}`)
}

/** The key of an address. Undefined if no page has named it so. */
export async function keyOf(id: string | null, seals: Seals): Promise<NamedKey | undefined> {
  const key = await seals.open('key', id)
  if (key !== undefined) return { text: key }
  const [, hashedBy, text] = /^(\w+) (.*)$/s.exec((await seals.open('hash', id)) ?? '') ?? []
  return text === undefined ? undefined : { text, hashedBy }
}

/** A link to a stored key. */
export async function keyLink(limit: Limit, key: string, { seals }: Looking): Promise<Html> {
  const id = await idOf({ text: key, hashedBy: await limit.hashedBy() }, seals)
  return html`<a class="key" href="${href({ limit: limit.name, id })}">${key}</a>`
}
