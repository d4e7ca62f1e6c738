/// <reference lib="esnext.disposable" preserve="true" />

import { checkOptions } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import { RatelimitError } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'

/** Options of `release`. */
export interface LeaseOptions {
  /** Your transaction: the slot is free when it commits. Default: the limiter's `db`. */
  readonly tx?: Database | undefined
}

/** A slot of a key, held until `release`, or until the lease is over. */
export interface Lease {
  /** A slot was free. */
  readonly success: true
  /**
   * A number that grows with each lease of the slot. Store it with what the work writes, and let the store
   * refuse a smaller one: the holder of an ended lease may still be at work.
   */
  readonly fence: number
  /**
   * Aborts when the work must stop: a tenth of the lease before its end, by the monotonic clock of this
   * process; at `release`; or when `extend` finds that the lease has ended. Its reason is a `RatelimitError`
   * with the code `LEASE_ENDED`. With `tx`, the lease ends with the transaction, and the signal aborts only at
   * `release`.
   */
  readonly signal: AbortSignal
  /**
   * Makes the lease last its whole length again, from now. It has no `tx`: if your transaction were rolled
   * back, the lease would end before `signal` says so.
   *
   * @returns Whether it does. False if it has ended; the signal is then aborted.
   * @throws RatelimitError `INVALID_OPTION`; the database errors of `Ratelimit.limit`.
   */
  extend(): Promise<boolean>
  /**
   * Frees the slot.
   *
   * @returns Whether this call has freed it. A second or late call does nothing, even if the slot has another
   * holder by then.
   * @throws RatelimitError `INVALID_OPTION`; the database errors of `Ratelimit.limit`. The lease then ends by
   * itself.
   */
  release(options?: LeaseOptions): Promise<boolean>
  /** The same as `release`, for `await using`. It throws no error of the database: the lease ends by itself. */
  [Symbol.asyncDispose](): Promise<void>
}

/** No slot was free in time. */
export interface NoLease {
  /** No slot was free. */
  readonly success: false
  /**
   * Milliseconds until the first lease of the key ends, if it is not extended; it may be released earlier. 0 if
   * others hold slots in transactions or wait for them, and `Infinity` for a limit of 0.
   */
  readonly retryAfter: number
  /** Does nothing. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The work must stop this share of the lease before its end. */
const STOP_SHARE = 0.1

/** When the work under a lease must stop, by the monotonic clock. `from` is when the statement was sent. */
export function stopsAt(from: number, leaseMs: number): number {
  return from + leaseMs * (1 - STOP_SHARE)
}

/** How the lease of a slot is changed. */
export interface HeldLease {
  /** Milliseconds. Undefined if it lasts as long as a transaction. */
  readonly leaseMs: number | undefined
  extend(): Promise<boolean>
  release(tx: Database | undefined): Promise<boolean>
}

/** @param sentAt When the statement was sent. The database counts from a later time. */
export function leaseOf(fence: number, { leaseMs, extend, release }: HeldLease, sentAt: number): Lease {
  const controller = new AbortController()
  const { signal } = controller
  let stopTimer = () => {}
  const stop = () => {
    stopTimer()
    if (!signal.aborted) controller.abort(ended())
  }
  const watch = (from: number) => {
    if (leaseMs === undefined) return
    stopTimer()
    // If the process was busy then, the answer of an extension may have arrived.
    stopTimer = doAfter(Math.max(stopsAt(from, leaseMs) - performance.now(), 0), stop)
  }
  watch(sentAt)
  const lease: Lease = {
    success: true,
    fence,
    signal,
    release: async (options = {}) => {
      checkOptions(options, CALLS.tx)
      stop()
      return release(options.tx)
    },
    extend: async (options: object = {}) => {
      checkOptions(options, {})
      // The signal has aborted the work.
      if (signal.aborted) return false
      const from = performance.now()
      const isExtended = await extend()
      if (!isExtended) stop()
      if (signal.aborted) return false
      watch(from)
      return true
    },
    [Symbol.asyncDispose]: async () => {
      await lease.release().catch(() => {})
    },
  }
  return lease
}

function ended(): RatelimitError {
  return new RatelimitError(
    'LEASE_ENDED',
    'The lease was released, or is about to end. Stop the work: another holder may begin.',
  )
}

/** What comes later than this after its time shows that the process was busy. */
const LATE_MS = 10

/**
 * Does work at a time by the clock, busy or not. If the process was busy then, it first reads what has arrived,
 * and nothing more. The timer does not keep the process alive.
 *
 * @returns A function that stops it.
 */
function doAfter(ms: number, work: () => void): () => void {
  const dueAtMs = performance.now() + ms
  let timer = setTimeout(() => {
    if (performance.now() - dueAtMs <= LATE_MS) work()
    else {
      timer = setTimeout(work, 1)
      // In some runtimes the timer is a number.
      timer.unref?.()
    }
  }, ms)
  timer.unref?.()
  return () => clearTimeout(timer)
}
