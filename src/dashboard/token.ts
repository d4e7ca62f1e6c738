import type { Seals } from './seal.ts'

/** How long a page can be used. */
const LIFE_MS = 12 * 3_600_000

/**
 * Tokens for the forms of a page. A token is valid for one viewer and for half a day, so another site cannot
 * send a form in the viewer's name.
 */
export class Tokens {
  readonly #seals: Seals

  constructor(seals: Seals) {
    this.#seals = seals
  }

  tokenFor(viewer: string): Promise<string> {
    return this.#seals.seal(`token ${Date.now() + LIFE_MS} ${viewer}`)
  }

  async isValid(token: string, viewer: string): Promise<boolean> {
    const opened = (await this.#seals.open(token)) ?? ''
    const [, until = '', of] = /^token (\d+) (.*)$/s.exec(opened) ?? []
    return of === viewer && Number(until) > Date.now()
  }
}
