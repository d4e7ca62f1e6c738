import type { Seals } from './seal.ts'

// A token of a form is valid for one viewer and for half a day, so another site cannot send a form in the
// viewer's name.

const LIFE_MS = 12 * 3_600_000

export function tokenFor(viewer: string, seals: Seals): Promise<string> {
  return seals.seal('token', `${Date.now() + LIFE_MS} ${viewer}`)
}

export async function isToken(token: string | null, viewer: string, seals: Seals): Promise<boolean> {
  const [, until = '', of] = /^(\d+) (.*)$/s.exec((await seals.open('token', token)) ?? '') ?? []
  return of === viewer && Number(until) > Date.now()
}
