import { hmacKey } from '../kernel/database/digest.ts'

/** How long a page can be used. */
const LIFE_MS = 12 * 3_600_000

const utf8 = new TextEncoder()

/**
 * Tokens for the forms of a page. A token is valid for one viewer and for half a day, so another site cannot
 * send a form in the viewer's name.
 */
export class Tokens {
  readonly #secret: string

  constructor(secret: string) {
    this.#secret = secret
  }

  async tokenFor(viewer: string): Promise<string> {
    const until = Date.now() + LIFE_MS
    const signature = await crypto.subtle.sign('HMAC', await this.#key(), signed(viewer, until))
    return `${until}.${btoa(String.fromCharCode(...new Uint8Array(signature)))}`
  }

  async isValid(token: string, viewer: string): Promise<boolean> {
    const [, until = '', signature = ''] = /^(\d{1,15})\.([\w+/=]{1,100})$/.exec(token) ?? []
    if (!(Number(until) > Date.now())) return false
    try {
      const bytes = Uint8Array.from(atob(signature), (character) => character.charCodeAt(0))
      return await crypto.subtle.verify('HMAC', await this.#key(), bytes, signed(viewer, Number(until)))
    } catch {
      // No base64.
      return false
    }
  }

  #key(): Promise<CryptoKey> {
    return hmacKey(this.#secret)
  }
}

function signed(viewer: string, until: number): Uint8Array<ArrayBuffer> {
  return utf8.encode(`drizzle-ratelimit dashboard\n${until}\n${viewer}`)
}
