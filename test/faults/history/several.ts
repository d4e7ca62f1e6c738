import { drizzle } from 'drizzle-orm/node-postgres'
import { type Database, type LimitRequest, type LimitResult, limitAll } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import {
  ALL,
  below,
  type Call,
  COUNTED,
  callAt,
  did,
  keyOf,
  pool,
  random,
  ratelimitOf,
  record,
  recorder,
} from './kit.ts'

// Calls of several keys, which are all charged or none.

/** Calls for different rows. */
function callsAt(places: readonly number[]): Call[] {
  const calls = Array.from({ length: 1 + below(4) }, () => callAt(places))
  return [...new Map(calls.map((call) => [`${call.limit} ${call.key}`, call])).values()]
}

function requestsOf(several: readonly Call[]): LimitRequest[] {
  return several.map((call) => ({
    ...{ ratelimit: ratelimitOf(call), key: keyOf(call), rate: call.rate },
    ...(call.limiter ? { limiter: call.limiter } : {}),
  }))
}

/** Writes down the answer of each call. Resolves to whether something was taken. */
async function recordEach(
  several: readonly Call[],
  all: Promise<{ readonly success: boolean; readonly results: readonly LimitResult[] }>,
): Promise<boolean> {
  const taken = await Promise.all(several.map((call, place) => record(call, resultOf(all, place))))
  return taken.some((rate) => rate > 0)
}

async function resultOf(all: Parameters<typeof recordEach>[1], place: number): Promise<LimitResult> {
  const { success, results } = await all
  const result = results[place]
  if (!result) throw new Error('A request has no result.')
  // If another limit has denied, nothing was taken.
  return success ? result : { ...result, success: false }
}

export async function together(): Promise<void> {
  const several = callsAt(ALL)
  await recordEach(several, limitAll(requestsOf(several)))
}

export async function reserveTogether(): Promise<void> {
  const several = callsAt(COUNTED).map((call) => ({ ...call, rate: 5 }))
  const reserving = reserveAll(requestsOf(several))
  if (!(await recordEach(several, reserving))) return
  const reserved = await reserving
  if (!reserved.success) return
  const actuals = random() < 0.3 ? several.map(() => 0) : several.map(() => below(6))
  const settling = actuals.some((actual) => actual > 0) ? reserved.commit(actuals) : reserved.release()
  await recordEach(
    several.map((call, place) => ({ ...call, rate: (actuals[place] ?? 0) - call.rate })),
    settling.then((results) => ({ success: true, results })),
  )
}

export async function spendFor(): Promise<void> {
  const several = callsAt(COUNTED)
  const rate = 1 + below(30)
  const requests = requestsOf(several).map(({ rate: _, ...request }) => request)
  const spending = spend(requests, { rate })
  const shares = await Promise.all(
    several.map((call, place) => record({ ...call, rate }, shareOf(spending, place))),
  )
  if (shares.every((share) => share === 0) || random() < 0.5) return
  const { success, results, release } = await spending
  const releasing = release()
  const backs = several.map((call, place) => ({ ...call, rate: -(shares[place] ?? 0) }))
  await recordEach(
    backs,
    releasing.then(() => ({ success, results })),
  )
}

/** The part of one limit in a cost that several share. */
async function shareOf(
  spending: ReturnType<typeof spend>,
  place: number,
): Promise<LimitResult & { readonly granted: number }> {
  const result = await resultOf(spending, place)
  return { ...result, granted: (await spending).granted[place] ?? 0 }
}

/** Rolls a transaction back. */
export class Undone extends Error {}

/** A transaction of the caller's, which ends as the caller likes, or as the network does. */
export async function joined(): Promise<void> {
  const several = callsAt(ALL)
  did.calls += several.length
  let taken: readonly LimitResult[] | undefined
  try {
    await transaction(async (tx) => {
      const { success, results } = await limitAll(requestsOf(several), { tx })
      if (!success || random() < 0.3) throw new Undone()
      taken = results
    })
    for (const [place, call] of several.entries()) {
      const answer = taken?.[place]
      if (answer) recorder.answer(call, answer)
    }
  } catch {
    // Before the commit nothing was charged.
    if (!taken) return
    for (const call of several) recorder.unknown(call)
  }
}

/** Drizzle 0.45's transaction on a pool loses a client for each BEGIN that fails. */
export async function transaction(work: (tx: Database) => Promise<void>): Promise<void> {
  const client = await pool.connect()
  let failed = true
  try {
    await drizzle({ client }).transaction(work)
    failed = false
  } catch (error) {
    failed = !(error instanceof Undone)
    throw error
  } finally {
    client.release(failed)
  }
}
