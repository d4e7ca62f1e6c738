import { hmacKey } from '../kernel/database/digest.ts'

const utf8 = new TextEncoder()

/**
 * Texts that nobody reads or makes without the secret: addresses name a key by its sealed text, because
 * addresses are logged. The same text is always sealed alike, so an address can be kept and shared.
 *
 * The beginning of a text's HMAC is what AES counts from, and what an opened text is compared with. It is the
 * construction of SIV. https://www.rfc-editor.org/rfc/rfc5297
 */
export class Seals {
  readonly #secret: string

  constructor(secret: string) {
    this.#secret = secret
  }

  /** @param purpose A word. What is sealed for one purpose says nothing for another. */
  async seal(purpose: string, about: string): Promise<string> {
    const text = `${purpose} ${about}`
    const start = await this.#startOf(text)
    const sealed = await crypto.subtle.encrypt(algorithm(start), await this.#key(), utf8.encode(text))
    const bytes = [...start, ...new Uint8Array(sealed)]
    return btoa(String.fromCharCode(...bytes)).replaceAll(/[+/=]/g, (each) => URL_SAFE[each] as string)
  }

  /** The text. Undefined if no page has sealed it for this purpose. */
  async open(purpose: string, sealed: string | null): Promise<string | undefined> {
    if (sealed === null) return undefined
    try {
      const base64 = sealed.replaceAll(/[-_]/g, (each) => (each === '-' ? '+' : '/'))
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
      const start = bytes.slice(0, START)
      const opened = await crypto.subtle.decrypt(algorithm(start), await this.#key(), bytes.slice(START))
      const text = new TextDecoder().decode(opened)
      const own = await this.#startOf(text)
      // All bytes are compared: the time must not tell how many of them are right.
      const differing = own.filter((byte, place) => byte !== start[place])
      return differing.length === 0 && text.startsWith(`${purpose} `)
        ? text.slice(purpose.length + 1)
        : undefined
    } catch {
      return undefined
    }
  }

  async #startOf(text: string): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.#hmac(`drizzle-ratelimit sealed text\n${text}`)).slice(0, START)
  }

  async #key(): Promise<CryptoKey> {
    const bytes = await this.#hmac('drizzle-ratelimit key of seals')
    return crypto.subtle.importKey('raw', bytes, 'AES-CTR', false, ['encrypt', 'decrypt'])
  }

  async #hmac(text: string): Promise<Uint8Array<ArrayBuffer>> {
    const key = await hmacKey(this.#secret)
    return new Uint8Array(await crypto.subtle.sign('HMAC', key, utf8.encode(text)))
  }
}

/** How many bytes a block of AES has. */
const START = 16

const URL_SAFE: Readonly<Record<string, string>> = { '+': '-', '/': '_', '=': '' }

function algorithm(counter: Uint8Array<ArrayBuffer>) {
  return { name: 'AES-CTR', counter, length: 64 }
}
