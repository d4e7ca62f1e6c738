// Ids in the keys of rows. In hexadecimal the ids of a key are next to each other in every collation.

const utf8 = new TextEncoder()

/** The two digits of each byte. */
const DIGITS = /* @__PURE__ */ Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

/** More than the ids of rows have. A new array for each id takes as long as all the rest. */
const shared = /* @__PURE__ */ new Uint8Array(4096)

export function toHex(id: string): string {
  const isLong = id.length * 3 > shared.length
  const bytes = isLong ? utf8.encode(id) : shared
  const length = isLong ? bytes.length : utf8.encodeInto(id, shared).written
  let text = ''
  for (let place = 0; place < length; place++) text += DIGITS[bytes[place] as number]
  return text
}

/** Undefined if the text is no id: it then belongs to a key that begins like one with an id. */
export function fromHex(text: string): string | undefined {
  if (!/^([0-9a-f]{2})+$/.test(text)) return undefined
  const bytes = Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16))
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
}
