import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import {
  type Database,
  type Limiter,
  type LimitRequest,
  type LimitResult,
  Ratelimit,
  type RatelimitConfig,
} from '../../src/index.ts'
import { randomFrom } from '../support/random.ts'
import { limitsFrom, type Tested } from './limits.ts'
import { Recorder } from './record.ts'

/** What a process is to do. */
export interface Job {
  readonly url: string
  readonly file: string
  readonly seed: number
  readonly calls: number
  readonly connections: number
  readonly started: number
  /** Each process resets keys of its own, so that it knows when one was reset. */
  readonly process: number
  readonly processes: number
}

/** What a process tells of its work. */
export interface Done {
  readonly calls: number
  readonly errors: Record<string, number>
  readonly counts: Recorder['counts']
  readonly resets: number
  readonly deleted: number
  readonly leaked: number
}

const job: Job = JSON.parse(process.argv[2] ?? '')
const CALLERS = 64
/** A client gives up a silent connection after this time. */
const TIMEOUT_MS = 1000

const pool = new pg.Pool({
  ...{ connectionString: job.url, max: job.connections, application_name: 'history' },
  ...{ connectionTimeoutMillis: 4 * TIMEOUT_MS, query_timeout: TIMEOUT_MS },
})
pool.on('error', () => {})
// Without it, a connection that breaks in a transaction of Drizzle 0.45 ends the process.
pool.on('connect', (client) => client.on('error', () => {}))
const db = drizzle({ client: pool })
const random = randomFrom(job.seed)
const recorder = new Recorder(job.file)
const limits = limitsFrom(job.started)
const ratelimits = limits.map(
  ({ limiter, prefix, options }) =>
    new Ratelimit({ db, limiter, prefix, cleanupProbability: 0.5, ...options } as RatelimitConfig),
)
const counted = limits.flatMap(({ kind }, limit) => (kind === 'counted' ? [limit] : []))
let calls = 0
let resets = 0
let deleted = 0

/** One call to be: where, how much, and under which plan. */
interface Call {
  readonly limit: number
  readonly key: number
  readonly rate: number
  readonly limiter?: Limiter | undefined
}

function below(end: number): number {
  return Math.floor(random() * end)
}

function tested(limit: number): Tested {
  return limits[limit] as Tested
}

function ratelimitOf({ limit }: Call): Ratelimit {
  return ratelimits[limit] as Ratelimit
}

function callOf(limit: number): Call {
  const { keys, plan } = tested(limit)
  return { limit, key: below(keys), rate: 1 + below(3), limiter: random() < 0.3 ? plan : undefined }
}

function keyOf({ key }: Call): string {
  return `key ${key}`
}

/** Writes down what a call was told. Resolves to whether it was granted. */
async function record({ limit, key, rate }: Call, work: Promise<LimitResult>): Promise<boolean> {
  calls++
  try {
    const answer = await work
    recorder.answer(limit, key, rate, answer)
    return answer.success
  } catch (error) {
    recorder.error(limit, key, rate, error)
    return false
  }
}

/** Calls of one limiter at once, which share statements: most are equal but for the key. */
async function burst(): Promise<void> {
  const first = callOf(below(limits.length))
  await Promise.all(
    Array.from({ length: 1 + below(100) }, () => {
      const other = callOf(first.limit)
      const call = random() < 0.95 ? { ...first, key: other.key } : other
      return record(call, ratelimitOf(call).limit(keyOf(call), call))
    }),
  )
}

async function refund(): Promise<void> {
  const call = callOf(counted[below(counted.length)] as number)
  // Only a large limit is never exceeded by force.
  const force = tested(call.limit).most > 1000 && random() < 0.3
  if (!(await record(call, ratelimitOf(call).limit(keyOf(call), { ...call, force })))) return
  const back = { ...call, rate: -call.rate }
  await record(back, ratelimitOf(call).limit(keyOf(call), back))
}

async function reserve(): Promise<void> {
  const call = { ...callOf(counted[below(counted.length)] as number), rate: 5 }
  const reserving = ratelimitOf(call).reserve(keyOf(call), call)
  if (!(await record(call, reserving))) return
  const reserved = await reserving
  if (!reserved.success) return
  const actual = below(6)
  await record({ ...call, rate: actual - 5 }, actual === 0 ? reserved.release() : reserved.commit(actual))
}

/** Calls for different rows. */
function severalCalls(): Call[] {
  const calls = Array.from({ length: 1 + below(4) }, () => callOf(below(limits.length)))
  return [...new Map(calls.map((call) => [`${call.limit} ${call.key}`, call])).values()]
}

function requestsOf(several: readonly Call[]): LimitRequest[] {
  return several.map((call) => ({
    ...{ ratelimit: ratelimitOf(call), key: keyOf(call), rate: call.rate },
    ...(call.limiter ? { limiter: call.limiter } : {}),
  }))
}

async function together(): Promise<void> {
  const several = severalCalls()
  const all = Ratelimit.limitAll(requestsOf(several))
  await Promise.all(several.map((call, i) => record(call, resultOf(all, i))))
}

async function resultOf(all: ReturnType<typeof Ratelimit.limitAll>, place: number): Promise<LimitResult> {
  const { success, results } = await all
  const result = results[place]
  if (!result) throw new Error('limitAll has no result for a request.')
  // If another limit has denied, nothing was taken.
  return success ? result : { ...result, success: false }
}

class Undone extends Error {}

/** A transaction of the caller's, which ends as the caller likes, or as the network does. */
async function joined(): Promise<void> {
  const several = severalCalls()
  calls += several.length
  let taken: readonly LimitResult[] | undefined
  try {
    await transaction(async (tx) => {
      const { success, results } = await Ratelimit.limitAll(requestsOf(several), { tx })
      if (!success || random() < 0.3) throw new Undone()
      taken = results
    })
    for (const [i, { limit, key, rate }] of several.entries()) {
      const answer = taken?.[i]
      if (answer) recorder.answer(limit, key, rate, answer)
    }
  } catch {
    // Before the commit nothing was charged.
    if (!taken) return
    for (const { limit, key, rate } of several) recorder.unknown(limit, key, rate)
  }
}

/** Drizzle 0.45's transaction on a pool loses a client for each BEGIN that fails. */
async function transaction(work: (tx: Database) => Promise<void>): Promise<void> {
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

/** When each key may be reset again, by the clock of this process. */
const resettable = new Map<number, number>()

/** Gives one of this process's keys its whole limit again. */
async function reset(): Promise<void> {
  const limit = limits.findIndex(({ isReset }) => isReset)
  const call = { limit, key: below(tested(limit).keys), rate: 1 }
  if (call.key % job.processes !== job.process) return
  if (performance.now() < (resettable.get(call.key) ?? 0)) return
  // A reset whose answer is lost may still come, but not as late as this.
  resettable.set(call.key, performance.now() + 10 * TIMEOUT_MS)
  calls++
  const { used } = await ratelimitOf(call).getRemaining(keyOf(call))
  // A window is known by the millisecond in which it starts: no two may start in the same one.
  await sleep(5)
  if (used > 0) {
    await ratelimitOf(call).resetUsedTokens(keyOf(call))
    resets++
  }
  resettable.delete(call.key)
}

async function look(): Promise<void> {
  const call = callOf(below(limits.length))
  calls++
  await ratelimitOf(call).getRemaining(keyOf(call))
}

async function clean(): Promise<void> {
  calls++
  const ending = limits.flatMap(({ kind }, limit) => (kind === 'counted' ? [] : [limit]))
  deleted += (await ratelimits[ending[below(ending.length)] ?? 0]?.cleanup()) ?? 0
}

/** What callers do, and how often. */
const actions = [
  ...[...times(40, burst), ...times(14, refund), ...times(14, reserve), ...times(10, together)],
  ...[...times(10, joined), ...times(5, look), ...times(4, clean), ...times(20, reset)],
]

function times(count: number, action: () => Promise<void>): (() => Promise<void>)[] {
  return Array<() => Promise<void>>(count).fill(action)
}

async function caller(): Promise<void> {
  while (calls < job.calls) {
    // Looks, resets and cleanups fail as others do. Nothing is counted then.
    await actions[below(actions.length)]?.().catch((error) => recorder.note(error))
  }
}

await Promise.all(Array.from({ length: CALLERS }, caller))
await recorder.close()
// A sweep may still be under way.
for (let i = 0; i < 100 && pool.totalCount > pool.idleCount; i++) await sleep(50)
const leaked = pool.totalCount - pool.idleCount
const done: Done = { calls, errors: recorder.errors, counts: recorder.counts, resets, deleted, leaked }
process.send?.(done)
process.disconnect()
// A pool that has lost clients does not end by itself.
setTimeout(() => process.exit(), 1000).unref()
pool.end()
