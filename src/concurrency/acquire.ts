import type { Limiter } from '../algorithms/algorithm.ts'
import type { Concurrency } from '../algorithms/concurrency.ts'
import type { Credits } from '../algorithms/credits.ts'
import { checkSignal, wait } from '../check/block.ts'
import { timedOut, watchBounds } from '../check/bounds.ts'
import type { Checker } from '../check/checker.ts'
import { publishError } from '../check/publish-error.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { channels } from '../diagnostics.ts'
import { parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { AcquireOptions } from '../options/calls.ts'
import { checkKey, checkOption, isConcurrency } from '../options/validate.ts'
import type { Slot } from './ask.ts'
import { type Lease, leaseOf, type NoLease } from './lease.ts'
import { Line, type Place } from './line.ts'
import { type Caller, change, type Look, look } from './slots.ts'

/** A wanted lease. */
export interface Wanted {
  /** The key as it is stored. */
  readonly key: string
  readonly limiter: Concurrency
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
  readonly tx: Database | undefined
}

/**
 * The shortest and the longest pause between two looks of a call that waits. It is random: of several processes
 * that wait, each is the first to find a free slot as often as the others.
 */
const PAUSE_MS = [25, 75] as const

/** How often a call looks if others hold the rows for a moment, which is no denial. */
const MAX_HELD_LOOKS = 6

/** @throws RatelimitError `INVALID_KEY`, `INVALID_OPTION`, `INVALID_DURATION` */
export function wantedBy(
  prefix: string,
  own: Limiter | Concurrency | Credits,
  key: string,
  options: AcquireOptions,
): Wanted {
  const { timeout = 0, signal, limiter = own, tx } = options
  checkKey(key, prefix)
  const isOwn = isConcurrency(own)
  checkOption(isOwn && isConcurrency(limiter), 'acquire needs a limiter made by Ratelimit.concurrency.')
  checkSignal(signal)
  return {
    key,
    limiter,
    timeoutMs: parseDuration(timeout, 'The timeout', 0),
    signal: signal ?? undefined,
    tx,
  }
}

/** The waiting calls of each limiter. */
const lines = new WeakMap<Checker, Line>()

/** Leases a slot. If no slot is free, it waits for one until the time is over. */
export async function acquire(checker: Checker, wanted: Wanted): Promise<Lease | NoLease> {
  const { prefix, clock } = checker.config.namespace
  const startedAt = performance.now()
  try {
    const joined = checker.joined(wanted.tx)
    // If the clock fails, it must fail before a slot is taken.
    const now = clock?.() ?? null
    const finding = slotInTime(checker, wanted, joined)
    if (!joined) checker.sweepAfter(finding, now)
    const found = await finding
    const lease = found.slot ? leased(checker, wanted, found.slot, found.sentAt) : noLease(found, wanted)
    const { key, limiter } = wanted
    channels.decision?.publish({
      ...{
        prefix,
        key,
        rate: 1,
        success: lease.success,
        limit: limiter.limit,
        degraded: false,
        wouldDeny: false,
        leased: false,
      },
      remaining: found.slot ? found.open - 1 : 0,
      retryAfter: lease.success ? 0 : lease.retryAfter,
      joined: joined !== undefined,
      durationMs: performance.now() - startedAt,
    })
    return lease
  } catch (error) {
    publishError(prefix, wanted, error)
    throw error
  }
}

async function slotInTime(checker: Checker, wanted: Wanted, joined: Connection | undefined): Promise<Look> {
  const { key, limiter, timeoutMs, signal } = wanted
  const endsAt = performance.now() + timeoutMs
  const sought = { key, limit: limiter.limit, leaseMs: limiter.leaseMs, waits: timeoutMs > 0 }
  signal?.throwIfAborted()
  const lookOnce = (waited: boolean) => {
    const lookFor = (caller: Caller) => look(checker, { ...sought, waited }, joined, caller)
    // Only the caller can end what runs in its transaction, and without a timeout nothing ends a single look.
    if (joined || (timeoutMs === 0 && !signal)) return lookFor({ hasGivenUp: false })
    return within(timeoutMs > 0 ? endsAt - performance.now() : undefined, signal, lookFor)
  }
  const first = await lookPastHeld(() => lookOnce(false), signal)
  if (first instanceof RatelimitError) throw first
  if (first.slot || timeoutMs === 0) return first
  const leave = checker.enter(key)
  const place = lineOf(checker)?.join(key)
  try {
    channels.wait?.publish({
      prefix: checker.config.namespace.prefix,
      key,
      waitMs: endsAt - performance.now(),
    })
    await comesFirst(place, endsAt - performance.now(), signal)
    let last = first
    while (!last.slot && performance.now() < endsAt) {
      await wait(Math.min(pauseMs(), endsAt - performance.now()), signal)
      const found = await lookOnce(true)
      if (!(found instanceof RatelimitError)) last = found
    }
    return last
  } finally {
    place?.leave()
    leave()
  }
}

/** The result of the look. If the time is over first, it leaves the queue, and the result is an error. */
function within(
  timeoutMs: number | undefined,
  signal: AbortSignal | undefined,
  work: (caller: Caller) => Promise<Look>,
): Promise<Look | RatelimitError> {
  return new Promise((resolve, reject) => {
    const caller: Caller = { hasGivenUp: false }
    const stop = watchBounds({ timeoutMs, signal }, (why) => {
      caller.hasGivenUp = true
      const { wasSent = false, isContended = false } = caller.leaveQueue?.() ?? {}
      if (why === 'timeout') resolve(timedOut(wasSent, isContended))
      else reject(why.aborted)
    })
    work(caller).then(resolve, reject).finally(stop)
  })
}

async function lookPastHeld(
  lookOnce: () => Promise<Look | RatelimitError>,
  signal: AbortSignal | undefined,
): Promise<Look | RatelimitError> {
  for (let looks = 1; ; looks++) {
    const found = await lookOnce()
    if (found instanceof RatelimitError || found.slot || found.open === 0 || looks === MAX_HELD_LOOKS)
      return found
    await wait(Math.random() * 2 ** (looks - 1), signal)
  }
}

/** The line of a limiter. In Workers a call cannot wait for another, so each call looks for itself. */
function lineOf(checker: Checker): Line | undefined {
  if (checker.config.connections === undefined) return undefined
  const line = lines.get(checker) ?? new Line()
  lines.set(checker, line)
  return line
}

/** Resolves when the place is the first in its line, or when the time is over. */
function comesFirst(
  place: Place | undefined,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    if (!place) return resolve()
    const stop = watchBounds({ timeoutMs, signal }, (why) => {
      if (why === 'timeout') resolve()
      else reject(why.aborted)
    })
    place.isFirst.then(() => {
      stop()
      resolve()
    })
  })
}

function pauseMs(): number {
  const [min, max] = PAUSE_MS
  return min + Math.random() * (max - min)
}

function leased(checker: Checker, { limiter, tx }: Wanted, slot: Slot, sentAt: number): Lease {
  const { leaseMs } = limiter
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

function noLease({ open, endsInMs = 0 }: Look, { limiter }: Wanted): NoLease {
  return {
    success: false,
    retryAfter: limiter.limit === 0 ? Number.POSITIVE_INFINITY : open > 0 ? 0 : endsInMs,
    [Symbol.asyncDispose]: async () => {},
  }
}
