import { grant as grantTo } from '../../../src/credits/grant-balance.ts'
import { handleOf } from '../../../src/kernel/engine/handles.ts'
import { callOf } from '../../../src/kernel/options/validate.ts'
import {
  ALL,
  below,
  COUNTED,
  callAt,
  inPart,
  keyOf,
  optionsOf,
  placesOf,
  random,
  ratelimitOf,
  record,
  tested,
} from './kit.ts'
import { WAITED_FOR } from './limits.ts'

// Calls of one key.

/** Calls of one limiter at once, which share statements: most are equal but for the key. */
export async function burst(): Promise<void> {
  const chosen = callAt(ALL)
  const first = random() < 0.2 ? inPart(chosen) : chosen
  await Promise.all(
    Array.from({ length: 1 + below(100) }, () => {
      const other = callAt([first.limit])
      const call = random() < 0.95 ? { ...first, key: other.key } : other
      return record(call, ratelimitOf(call).limit(keyOf(call), optionsOf(call)))
    }),
  )
}

export async function refund(): Promise<void> {
  const chosen = callAt(COUNTED)
  const call = random() < 0.2 ? inPart(chosen) : chosen
  // Only a large limit is never exceeded by force.
  const force = call.atLeast === undefined && tested(call.limit).most > 1000 && random() < 0.3
  const taken = await record(call, ratelimitOf(call).limit(keyOf(call), { ...optionsOf(call), force }))
  if (taken === 0) return
  const back = { ...call, rate: -taken, atLeast: undefined }
  await record(back, ratelimitOf(call).limit(keyOf(call), optionsOf(back)))
}

/**
 * It is not called on windows that end, where the check counts the units of each window: a check that was
 * granted too late for its caller takes one, and gives it back. On limits that refill, it has one key.
 */
const WAITING = placesOf('counted', 'rate')

/** Some of these waits end while their check is under way. */
export async function block(): Promise<void> {
  const chosen = callAt(WAITING)
  const call = tested(chosen.limit).kind === 'rate' ? { ...chosen, key: WAITED_FOR } : chosen
  await record(
    call,
    ratelimitOf(call).blockUntilReady(keyOf(call), 1 + below(100), {
      rate: call.rate,
      limiter: call.limiter,
    }),
  )
}

const BALANCES = ALL.filter((limit) => tested(limit).credited !== undefined)

/** Adds credits to a balance. */
export async function grant(): Promise<void> {
  const call = { ...callAt(BALANCES), rate: 1 + below(100), isCredit: true }
  const { checker } = handleOf(ratelimitOf(call), 'It has a handle.')
  const { prefix, limiter } = ratelimitOf(call)
  const granting = grantTo(checker, callOf(prefix, limiter, keyOf(call), { rate: call.rate }), undefined)
  await record(
    call,
    granting.then((usage) => ({ ...usage, success: true })),
  )
}
