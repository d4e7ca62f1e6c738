import { sha256 } from '../kernel/database/digest.ts'
import type { Call } from '../kernel/store/call.ts'

// A mark tells each use of an id from all others, and says what the call was charged: its key and its rate. It
// is a random number, the salt, and a hash of the three. `limit` leaves a 1 in the row of an id.

const HASHES = 2 ** 32
const SALTS = 2 ** 20

/** What a call has to be charged to have a mark. */
type Marked = Pick<Call, 'key' | 'rate'>

export function newMark(call: Marked): Promise<number> {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1))
  return markWith(1 + (random % SALTS), call)
}

/** Whether a call with the mark was charged the same as this one. */
export async function isMarkOf(mark: number, call: Marked): Promise<boolean> {
  return (await markWith(Math.floor(mark / HASHES), call)) === mark
}

async function markWith(salt: number, { key, rate }: Marked): Promise<number> {
  return salt * HASHES + Number.parseInt((await sha256(`${salt} ${rate} ${key}`)).slice(0, 8), 16)
}
