const utf8 = new TextEncoder()

export async function sha256(text: string): Promise<string> {
  return inHexadecimal(await crypto.subtle.digest('SHA-256', utf8.encode(text)))
}

/** A function for the HMAC-SHA-256 of texts with the secret, in hexadecimal. */
export function hmacWith(secret: string): (text: string) => Promise<string> {
  let key: CryptoKey | undefined
  return async (text) => {
    // Keeps the key instead of its promise, because in Workers a promise ends with its request.
    key ??= await hmacKey(secret)
    return inHexadecimal(await crypto.subtle.sign('HMAC', key, utf8.encode(text)))
  }
}

export function hmacKey(secret: string): Promise<CryptoKey> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  return crypto.subtle.importKey('raw', utf8.encode(secret), algorithm, false, ['sign', 'verify'])
}

function inHexadecimal(bytes: ArrayBuffer): string {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('')
}
