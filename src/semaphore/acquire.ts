import type { Database } from '../kernel/database/database.ts'
import { parseDuration } from '../kernel/duration.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { watched } from '../kernel/engine/layers.ts'
import { own } from '../kernel/errors.ts'
import { checkKey } from '../kernel/options/validate.ts'
import { checkSignal } from '../shared/until-allowed.ts'
import type { Slot } from './ask.ts'
import { type Lease, leaseOf, type NoLease } from './lease.ts'
import type { Look } from './look.ts'
import type { AcquireOptions } from './options.ts'
import { checkLimit, lengthOf, type Plan } from './plan.ts'
import { change } from './slots.ts'
import { slotInTime, type Wanted } from './waiting.ts'

/** @throws RatelimitError `INVALID_KEY`, `INVALID_OPTION`, `INVALID_LIMIT`, `INVALID_DURATION` */
export function wantedBy(prefix: string, own: Plan, key: string, options: AcquireOptions): Wanted {
  const { timeout = 0, limit = own.limit, lease = own.leaseMs, signal, tx } = options
  checkKey(key, prefix)
  checkSignal(signal)
  const timeoutMs = parseDuration(timeout, 'The timeout', 0)
  return {
    key,
    limit: checkLimit(limit),
    leaseMs: lengthOf(lease),
    // Without slots, there is nothing to wait for.
    timeoutMs: limit === 0 ? 0 : timeoutMs,
    signal: signal ?? undefined,
    tx,
  }
}

/** Leases a slot. If no slot is free, it waits for one until the time is over. */
export async function acquire(checker: Checker, wanted: Wanted): Promise<Lease | NoLease> {
  const { key, limit, signal, tx } = wanted
  const { lease } = await watched(
    [{ checker, call: { key, rate: 1 } }],
    tx,
    () => own(acquireIn(checker, wanted), signal),
    ({ lease, remaining }) => [{ answer: { retryAfter: 0, ...lease, limit, remaining } }],
  )
  return lease
}

async function acquireIn(
  checker: Checker,
  wanted: Wanted,
): Promise<{ readonly lease: Lease | NoLease; readonly remaining: number }> {
  const joined = checker.joined(wanted.tx)
  // If the clock fails, it must fail before a slot is taken.
  const now = checker.rows.namespace.clock?.() ?? null
  const finding = slotInTime(checker, wanted, joined)
  if (!joined) checker.alone.sweeps.after(finding, now)
  const found = await finding
  return found.slot
    ? { lease: leased(checker, wanted, found.slot, found.sentAt), remaining: found.open - 1 }
    : { lease: noLease(found, wanted), remaining: 0 }
}

function leased(checker: Checker, { leaseMs, tx }: Wanted, slot: Slot, sentAt: number): Lease {
  const timed = {
    leaseMs,
    extend: () => change(checker, 'extend', slot, leaseMs, undefined),
    release: (other: Database | undefined) => change(checker, 'release', slot, leaseMs, other),
  }
  return leaseOf(slot.fence, checker.joined(tx) ? untilCommit() : timed, sentAt)
}

/** The row's lock is the lease, and only the end of the transaction frees it. */
function untilCommit() {
  let isReleased = false
  const release = async () => {
    const isFirst = !isReleased
    isReleased = true
    return isFirst
  }
  return { leaseMs: undefined, extend: async () => true, release }
}

function noLease({ open, endsInMs = 0 }: Look, { limit }: Wanted): NoLease {
  return {
    success: false,
    retryAfter: limit === 0 ? Number.POSITIVE_INFINITY : open > 0 ? 0 : endsInMs,
    [Symbol.asyncDispose]: async () => {},
  }
}
