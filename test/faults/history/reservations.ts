import { Ratelimit } from '../../../src/index.ts'
import {
  below,
  type Call,
  COUNTED,
  callAt,
  inPart,
  keyOf,
  optionsOf,
  random,
  ratelimitOf,
  record,
  tested,
} from './kit.ts'

// Estimates of one key, which are settled here, or by their text in any process.

/** A reservation that another process shall settle. */
export interface Handed {
  readonly text: string
  readonly limit: number
  readonly key: number
  readonly estimate: number
  readonly hasPlan: boolean
}

const handed: Handed[] = []

export function receive(reservation: Handed): void {
  handed.push(reservation)
}

export async function reserve(): Promise<void> {
  const chosen = callAt(COUNTED)
  const call = random() < 0.3 ? inPart(chosen) : { ...chosen, rate: 5 }
  const reserving = ratelimitOf(call).reserve(keyOf(call), optionsOf(call))
  const estimate = await record(call, reserving)
  if (estimate === 0) return
  const reserved = await reserving
  if (!reserved.success) return
  // The text of a balance needs a name.
  const hasText = tested(call.limit).limiter !== Ratelimit.balance()
  if (hasText && random() < 0.3) return handOver(call, estimate, String(reserved))
  const actual = below(estimate + 1)
  const settling = actual === 0 ? reserved.release() : reserved.commit(actual)
  await record({ ...call, rate: actual - estimate }, settling)
}

/** Gives a reservation to the parent, which gives it to another process. */
function handOver({ limit, key, limiter }: Call, estimate: number, text: string): void {
  const reservation: Handed = { limit, key, estimate, text, hasPlan: limiter !== undefined }
  process.send?.({ handed: reservation })
}

/** Settles a reservation of another process. What is not settled before the end stays charged. */
export async function settle(): Promise<void> {
  const reservation = handed.shift()
  if (!reservation) return
  const { text, estimate, hasPlan, ...of } = reservation
  const actual = below(estimate + 1)
  const limiter = hasPlan ? tested(of.limit).plan : undefined
  await record({ ...of, rate: actual - estimate }, ratelimitOf(of).settle(text, actual, { limiter }))
}
