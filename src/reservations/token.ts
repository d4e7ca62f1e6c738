import type { CheckerConfig } from '../check/checker-config.ts'
import { hmacKey } from '../database/digest.ts'
import { checkOption } from '../options/validate.ts'
import { quotedName } from '../tables/table-name.ts'
import type { Estimate } from './settlement.ts'

// A token is `r1.<JSON>.<HMAC-SHA-256>`, both in base64url. The signature covers everything before it. The
// token of a reservation with a name begins with `r2.`, and its JSON is the prefix, the table and the key of
// its row.

/** The content of a token. */
export interface Content {
  readonly estimate: Estimate
  /** Whether the call named a limiter of its own: a customer's plan. */
  readonly hasPlan: boolean
  /** The id of the caller's transaction that has charged the estimate. Undefined if it was charged alone. */
  readonly transaction?: string | undefined
}

/** The limiter that signs tokens, or reads them. */
type Owner = Pick<CheckerConfig, 'namespace' | 'table'>

/** The JSON of a token. It is a list, because that is shorter. An infinite capacity is null. */
type Fields = readonly [
  id: string,
  prefix: string,
  table: string,
  layout: string,
  hasPlan: boolean,
  key: string,
  how: Estimate['how'],
  rate: number,
  windowStart: number | null,
  usedBefore: number | null,
  limit: number | null,
  refundableUntil: number | null,
  windowEnd: number | null,
  transaction?: string,
]

/** The longest prefix and key take 8,192 characters, if JSON escapes each of their bytes. */
const MAX_LENGTH = 10_000
const PATTERN = /^(r[12]\.[\w-]+)\.([\w-]{43})$/
const ID_BYTES = 12

const utf8 = new TextEncoder()

/** The token of an estimate. Equal estimates get different tokens. */
export async function tokenOf(owner: Owner, secret: string, content: Content): Promise<string> {
  const { estimate, hasPlan, transaction } = content
  const { key, how, limit, paid, layout, refundableUntil, windowEnd } = estimate
  const id = toBase64Url(crypto.getRandomValues(new Uint8Array(ID_BYTES)))
  const fields = [
    id,
    owner.namespace.prefix,
    quotedName(owner.table.table),
    layout,
    hasPlan,
    key,
    how,
    paid.rate,
    paid.windowStart,
    paid.usedBefore,
    limit,
    refundableUntil,
    windowEnd,
  ] as const
  const all: Fields = transaction === undefined ? fields : [...fields, transaction]
  return signedText('r1', all, secret)
}

/** The token of a reservation with a name. It has one token, because it is settled once. */
export function nameTokenOf(owner: Owner, secret: string, row: string): Promise<string> {
  return signedText('r2', [owner.namespace.prefix, quotedName(owner.table.table), row], secret)
}

async function signedText(version: string, fields: readonly unknown[], secret: string): Promise<string> {
  const signed = `${version}.${toBase64Url(utf8.encode(JSON.stringify(fields)))}`
  const signature = await crypto.subtle.sign('HMAC', await hmacKey(secret), utf8.encode(signed))
  return `${signed}.${toBase64Url(new Uint8Array(signature))}`
}

/**
 * Reads a token of this limiter. If the reservation has a name, returns the key of its row.
 *
 * @throws RatelimitError `INVALID_OPTION` for a token that was signed with another secret or is for other rows.
 */
export async function readToken(owner: Owner, secret: string, token: unknown): Promise<Content | string> {
  checkOption(typeof token === 'string' && token.length <= MAX_LENGTH, NOT_SIGNED)
  const [, signed = '', signature = ''] = PATTERN.exec(token) ?? []
  checkOption(await isSignature(signature, signed, secret), NOT_SIGNED)
  // The signature proves that this file wrote it.
  const json = new TextDecoder().decode(fromBase64Url(signed.slice('r1.'.length)))
  if (signed.startsWith('r2.')) {
    const [prefix, table, row] = JSON.parse(json) as [string, string, string]
    checkRowsOf(owner, prefix, table)
    return row
  }
  const fields = JSON.parse(json) as Fields
  const [, prefix, table, layout, hasPlan, key, how, rate, windowStart, usedBefore, ...more] = fields
  const [limit, refundableUntil, windowEnd, transaction] = more
  checkRowsOf(owner, prefix, table)
  const paid = { rate, windowStart, usedBefore }
  const capacity = limit ?? Number.POSITIVE_INFINITY
  const estimate = { key, how, paid, limit: capacity, layout, refundableUntil, windowEnd }
  return { estimate, hasPlan, transaction }
}

function checkRowsOf(owner: Owner, prefix: string, table: string): void {
  checkOption(prefix === owner.namespace.prefix, 'The reservation has another prefix.')
  checkOption(table === quotedName(owner.table.table), 'The reservation is in another table.')
}

const NOT_SIGNED = 'This is not the text of a reservation that was signed with this reservationSecret.'

async function isSignature(signature: string, signed: string, secret: string): Promise<boolean> {
  const bytes = fromBase64Url(signature)
  // The last character has two unused bits. If they could differ, one token would have several texts.
  if (toBase64Url(bytes) !== signature) return false
  return crypto.subtle.verify('HMAC', await hmacKey(secret), bytes, utf8.encode(signed))
}

function toBase64Url(bytes: Uint8Array): string {
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}

function fromBase64Url(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'))
  return Uint8Array.from(binary, (character) => character.charCodeAt(0))
}
