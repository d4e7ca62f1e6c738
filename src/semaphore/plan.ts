import { type Duration, parseDuration } from '../kernel/duration.ts'
import { RatelimitError } from '../kernel/errors.ts'

/** How many slots of a key may be held at once, and for how long each. */
export interface Plan {
  /** The most slots. */
  readonly limit: number
  /** Milliseconds after which a lease ends by itself. */
  readonly leaseMs: number
}

/** The number of a slot has four digits in the key of its row. */
export const MAX_SLOTS = 1_000

/** A shorter lease could end before the answer arrives. */
const MIN_LEASE_MS = 100

/**
 * A day. Longer work has to extend its lease, because after a crash its slot is in use until the lease ends.
 */
const MAX_SLOT_LEASE_MS = 86_400_000

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkLimit(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 0 && limit <= MAX_SLOTS) return limit
  throw new RatelimitError('INVALID_LIMIT', 'The limit must be a whole number of slots from 0 to 1000.')
}

/**
 * The length of a lease in milliseconds.
 *
 * @throws RatelimitError `INVALID_DURATION`
 */
export function lengthOf(lease: Duration): number {
  const leaseMs = parseDuration(lease, 'The lease', MIN_LEASE_MS)
  if (leaseMs <= MAX_SLOT_LEASE_MS) return leaseMs
  throw new RatelimitError('INVALID_DURATION', 'The lease must be at most a day: extend it for longer work.')
}
