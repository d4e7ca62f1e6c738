import { onceFor } from '../kernel/base/once.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { companionChecker } from '../kernel/engine/companion.ts'
import { checkOption, isStorable } from '../kernel/options/validate.ts'
import { RESERVED_PREFIX, SHARE_PREFIX } from '../kernel/sql/own-prefixes.ts'
import { fromHex, toHex } from '../shared/hex-id.ts'

// The names of reservations. The key of a named estimate's row is the limited key, a slash, and the id in
// hexadecimal. If several rows pay, each has a row that says what its share is.

/** The checkers of a limiter's named estimates, or of the shares in them. */
interface Names {
  /** Its lists insert the rows. */
  readonly opener: Checker
  readonly closer: Checker
}

/** The checkers of a limiter's named estimates. */
export const namesOf: (owner: Checker) => Names = onceFor((owner) => companionsOf(owner, RESERVED_PREFIX))

/** The checkers of the shares in a limiter's named estimates. */
export const shareCheckers: (owner: Checker) => Names = onceFor((owner) => companionsOf(owner, SHARE_PREFIX))

/** The rows have a prefix of their own, in the same table. */
function companionsOf(owner: Checker, before: string): Names {
  const companion = { prefix: before + owner.rows.namespace.prefix, comesLast: true }
  return {
    opener: companionChecker(owner, { ...companion, isUsuallyNew: true }),
    // The calls that open estimates sweep the rows.
    closer: companionChecker(owner, { ...companion, isSwept: false }),
  }
}

/**
 * The key of the row of a named estimate.
 *
 * @param key As it is stored.
 * @throws RatelimitError `INVALID_OPTION`
 */
export async function keyOfName({ rows, terms }: Checker, key: string, id: unknown): Promise<string> {
  const isText = typeof id === 'string' && id !== '' && id.isWellFormed()
  const named = isText ? `${key}/${toHex(terms.hash ? await terms.hash(id) : id)}` : ''
  checkOption(
    isStorable(named, RESERVED_PREFIX + rows.namespace.prefix),
    'The id of a reservation must be a string. Prefix, key and twice the id may have about 1,000 bytes together.',
  )
  return named
}

/** The limited key in the key of a named estimate's row. */
function limitedKeyIn(row: string): string {
  return row.slice(0, row.lastIndexOf('/'))
}

/** The limited key and the id in the key of a named estimate's row. */
export function nameIn(row: string): { readonly key: string; readonly id: string } {
  const key = limitedKeyIn(row)
  return { key, id: fromHex(row.slice(key.length + 1)) ?? '' }
}

/**
 * The key of the row of a share: the key of the estimate's row, a slash, the place in the order of paying, and
 * what the key of the row that pays has after the limited key.
 */
export function keyOfShare(name: string, place: number, payer: string): string {
  return `${name}/${place}${payer.slice(limitedKeyIn(name).length).replaceAll('/', '-')}`
}

/** The place in the order of paying, and the key of the row that pays, in the key of a share's row. */
export function payerIn(share: string): { readonly place: number; readonly key: string } {
  const name = limitedKeyIn(share)
  const [place = '', ...rest] = share.slice(name.length + 1).split('-')
  return { place: Number(place), key: [limitedKeyIn(name), ...rest].join('/') }
}
