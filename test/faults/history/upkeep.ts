import { setTimeout as sleep } from 'node:timers/promises'
import { usage } from 'drizzle-ratelimit/reports'
import { closePeriods } from '../../../src/quota/index.ts'
import {
  ALL,
  below,
  callAt,
  db,
  did,
  job,
  keyOf,
  limits,
  placesOf,
  ratelimitOf,
  recorder,
  TIMEOUT_MS,
  tested,
} from './kit.ts'
import { transaction } from './several.ts'

// What charges nothing: looks, resets, and what removes rows.

/** When each key may be reset again, by the clock of this process. */
const resettable = new Map<number, number>()

/** Gives one of this process's keys its whole limit again. */
export async function reset(): Promise<void> {
  const limit = limits.findIndex(({ isReset }) => isReset)
  const call = { limit, key: below(tested(limit).keys) }
  if (call.key % job.processes !== job.process) return
  if (performance.now() < (resettable.get(call.key) ?? 0)) return
  // A reset whose answer is lost may still come, but not as late as this.
  resettable.set(call.key, performance.now() + 10 * TIMEOUT_MS)
  did.calls++
  const { used } = await ratelimitOf(call).getRemaining(keyOf(call))
  // A window is known by the millisecond in which it starts: no two may start in the same one.
  await sleep(5)
  if (used > 0) {
    await ratelimitOf(call).resetUsedTokens(keyOf(call))
    did.resets++
  }
  resettable.delete(call.key)
}

export async function look(): Promise<void> {
  const call = callAt(ALL)
  did.calls++
  await ratelimitOf(call).getRemaining(keyOf(call))
}

export async function lookAtAll(): Promise<void> {
  const { limit } = callAt(ALL)
  const keys = Array.from({ length: tested(limit).keys }, (_, key) => keyOf({ key }))
  did.calls++
  const looks = await ratelimitOf({ limit }).getRemainingAll(keys)
  if (looks.length !== keys.length) throw new Error('getRemainingAll has left out a key.')
}

export async function list(): Promise<void> {
  const { limiter, prefix, options, keys } = tested(callAt(ALL).limit)
  did.calls++
  const listed = await usage({ db, prefix, limiter, durable: options?.durable ?? false }, { top: keys })
  if (new Set(listed.map(({ key }) => key)).size < listed.length)
    throw new Error('usage has listed a key twice.')
}

const ENDING = placesOf('windows', 'rate')

export async function clean(): Promise<void> {
  did.calls++
  did.deleted += await ratelimitOf(callAt(ENDING)).cleanup()
}

const PERIODS = ENDING.filter((limit) => tested(limit).hasPeriods)

/** In a transaction of the caller's, whose own errors are not counted. */
export async function close(): Promise<void> {
  const { limiter, prefix, options } = tested(callAt(PERIODS).limit)
  did.calls++
  let closed = 0
  const closing = transaction(async (tx) => {
    const periods = closePeriods({ db: tx, prefix, limiter, durable: options?.durable ?? false }, { tx })
    closed = (await periods.catch(noted)).length
  })
  await closing.then(
    () => {
      did.deleted += closed
    },
    () => {},
  )
}

function noted(error: unknown): never {
  recorder.note(error)
  throw error
}
