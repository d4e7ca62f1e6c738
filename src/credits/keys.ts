import { fromHex, toHex } from '../shared/hex-id.ts'

// The keys of the rows of a key's credits. Each is the limited key and one of these, so that they are next to
// each other in the primary key, and no two keys have a row in common.

/** The end of the key of the row with the debt. */
export const DEBT = '/debt'

/** What the key of a grant's row has before the grant's id, in hexadecimal. */
export const GRANT = '/grant/'

/** The key of a grant's row. */
export function keyOfGrant(key: string, id: string): string {
  return `${key}${GRANT}${toHex(id)}`
}

/** The limited key in the key of a row, and the id of the grant. What is owed has no id. */
export function rowIn(row: string): { readonly key: string; readonly name?: string } {
  if (row.endsWith(DEBT)) return { key: row.slice(0, -DEBT.length) }
  const at = row.lastIndexOf(GRANT)
  return { key: row.slice(0, at), name: fromHex(row.slice(at + GRANT.length)) ?? '' }
}
