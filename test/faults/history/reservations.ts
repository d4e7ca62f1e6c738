import { randomUUID } from 'node:crypto'
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

// Estimates of one key, which are settled here, or by their name in any process.

/** A reservation that another process shall settle. */
export interface Handed {
  readonly id: string
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
  const id = random() < 0.3 ? randomUUID() : undefined
  const named = id === undefined ? {} : ({ id, expires: '1d' } as const)
  const reserving = ratelimitOf(call).reserve(keyOf(call), { ...optionsOf(call), ...named })
  const estimate = await record(call, reserving)
  if (estimate === 0) return
  const reserved = await reserving
  if (!reserved.success) return
  if (id !== undefined) return handOver(call, estimate, id)
  const actual = below(estimate + 1)
  const settling = actual === 0 ? reserved.release() : reserved.commit(actual)
  await record({ ...call, rate: actual - estimate }, settling)
}

/** Gives a reservation to the parent, which gives it to another process. */
function handOver({ limit, key, limiter }: Call, estimate: number, id: string): void {
  const reservation: Handed = { limit, key, estimate, id, hasPlan: limiter !== undefined }
  process.send?.({ handed: reservation })
}

/** Settles a reservation of another process. What is not settled before the end stays charged. */
export async function settle(): Promise<void> {
  const reservation = handed.shift()
  if (!reservation) return
  const { id, estimate, hasPlan, ...of } = reservation
  const actual = below(estimate + 1)
  const limiter = hasPlan ? tested(of.limit).plan : undefined
  const settling = ratelimitOf(of).settle({ key: keyOf(of), id }, actual, { limiter })
  await record({ ...of, rate: actual - estimate }, settling)
}
