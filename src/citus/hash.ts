const encoder = new TextEncoder()

/**
 * Postgres' hash of a text, `hashtext`, by which Citus finds the shard of a key. It is Bob Jenkins' lookup3 on
 * the bytes of the text, as `hash_bytes` in src/common/hashfn.c computes it on little-endian servers.
 */
export function hashText(text: string): number {
  const bytes = encoder.encode(text)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let a = (0x9e3779b9 + bytes.length + 3_923_095) | 0
  let b = a
  let c = a
  let at = 0
  for (; bytes.length - at >= 12; at += 12) {
    a = (a + view.getInt32(at, true)) | 0
    b = (b + view.getInt32(at + 4, true)) | 0
    c = (c + view.getInt32(at + 8, true)) | 0
    a = (((a - c) | 0) ^ turned(c, 4)) | 0
    c = (c + b) | 0
    b = (((b - a) | 0) ^ turned(a, 6)) | 0
    a = (a + c) | 0
    c = (((c - b) | 0) ^ turned(b, 8)) | 0
    b = (b + a) | 0
    a = (((a - c) | 0) ^ turned(c, 16)) | 0
    c = (c + b) | 0
    b = (((b - a) | 0) ^ turned(a, 19)) | 0
    a = (a + c) | 0
    c = (((c - b) | 0) ^ turned(b, 4)) | 0
    b = (b + a) | 0
  }
  for (let i = at; i < bytes.length; i++) {
    const [byte, place] = [bytes[i] as number, i - at]
    if (place < 4) a = (a + (byte << (8 * place))) | 0
    else if (place < 8) b = (b + (byte << (8 * (place - 4)))) | 0
    // The lowest byte stands for the length.
    else c = (c + (byte << (8 * (place - 7)))) | 0
  }
  c = ((c ^ b) - turned(b, 14)) | 0
  a = ((a ^ c) - turned(c, 11)) | 0
  b = ((b ^ a) - turned(a, 25)) | 0
  c = ((c ^ b) - turned(b, 16)) | 0
  a = ((a ^ c) - turned(c, 4)) | 0
  b = ((b ^ a) - turned(a, 14)) | 0
  return ((c ^ b) - turned(b, 24)) | 0
}

function turned(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits))
}
