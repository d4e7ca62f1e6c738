import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { type Limiter, type LimitResult, RatelimitError } from '../../../src/index.ts'
import { Quota, type QuotaConfig } from '../../../src/quota/index.ts'
import { randomFrom } from '../../support/random.ts'
import { limitsFrom, type Tested } from './limits.ts'
import { Recorder } from './record.ts'

// What the calls of one process share.

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

export const job: Job = JSON.parse(process.argv[2] ?? '')
/** A client gives up a silent connection after this time. */
export const TIMEOUT_MS = 1000

export const pool: pg.Pool = new pg.Pool({
  ...{ connectionString: job.url, max: job.connections, application_name: 'history' },
  ...{ connectionTimeoutMillis: 4 * TIMEOUT_MS, query_timeout: TIMEOUT_MS },
})
pool.on('error', () => {})
// Without it, a connection that breaks in a transaction of Drizzle 0.45 ends the process.
pool.on('connect', (client) => client.on('error', () => {}))
export const db: ReturnType<typeof drizzle> = drizzle({ client: pool })

export const random: () => number = randomFrom(job.seed)
export const recorder: Recorder = new Recorder(job.file)
export const limits: readonly Tested[] = limitsFrom(job.started)
export const did = { calls: 0, resets: 0, deleted: 0 }

const ratelimits = limits.map(
  ({ limiter, prefix, options }) =>
    new Quota({
      ...{ db, limiter, prefix, cleanupProbability: 0.5, durable: false },
      ...options,
    } as QuotaConfig),
)

/** One call to be: where, how much, and under which plan. */
export interface Call {
  readonly limit: number
  readonly key: number
  readonly rate: number
  readonly atLeast?: number | undefined
  readonly limiter?: Limiter | undefined
  /** Whether it adds credits to a balance, and takes none. */
  readonly isCredit?: boolean
}

export function below(end: number): number {
  return Math.floor(random() * end)
}

export function tested(limit: number): Tested {
  return limits[limit] as Tested
}

export function ratelimitOf({ limit }: Pick<Call, 'limit'>): Quota {
  return ratelimits[limit] as Quota
}

/** The places of the limits of some kinds. */
export function placesOf(...kinds: readonly Tested['kind'][]): readonly number[] {
  return limits.flatMap(({ kind }, limit) => (kinds.includes(kind) ? [limit] : []))
}

export const ALL: readonly number[] = placesOf('counted', 'windows', 'rate')
export const COUNTED: readonly number[] = placesOf('counted')

/** A call by chance, for one of the limits in `places`. */
export function callAt(places: readonly number[]): Call {
  const limit = places[below(places.length)] as number
  const { keys, plan } = tested(limit)
  return { limit, key: below(keys), rate: 1 + below(3), limiter: random() < 0.3 ? plan : undefined }
}

/** The same call for more, which takes what there is. */
export function inPart(call: Call): Call {
  return { ...call, rate: 10 * call.rate, atLeast: call.rate }
}

/** What the limiter is asked of the call. */
export function optionsOf({ rate, atLeast, limiter }: Call): Pick<Call, 'rate' | 'atLeast' | 'limiter'> {
  return { rate, atLeast, limiter }
}

export function keyOf({ key }: Pick<Call, 'key'>): string {
  return `key ${key}`
}

/** The answer of a call, as it is written down. */
type Told = Pick<LimitResult, 'success' | 'limit' | 'remaining' | 'reset'> & { readonly granted?: number }

/** Writes down the answer of a call. Resolves to how much it took. */
export async function record(call: Call, work: Promise<Told>): Promise<number> {
  did.calls++
  try {
    const answer = await work
    const rate = answer.granted ?? call.rate
    recorder.answer({ ...call, rate }, answer)
    return answer.success ? rate : 0
  } catch (error) {
    // A mistake of the test: a call that is refused tests nothing.
    if (error instanceof RatelimitError && error.code.startsWith('INVALID_')) throw error
    recorder.error(call, error)
    return 0
  }
}
