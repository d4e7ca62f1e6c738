import { openSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/node-postgres'
import { type PrefetchOptions, prefetch } from 'drizzle-ratelimit/prefetch'
import pg from 'pg'
import { Ratelimit, RatelimitError } from '../../../src/index.ts'
import { randomFrom } from '../../support/random.ts'
import { prefetchLimits } from './prefetch-limits.ts'

/** What a process is to do. */
export interface PrefetchingJob {
  readonly url: string
  readonly file: string
  readonly seed: number
  readonly calls: number
  readonly prefetching: PrefetchOptions | null
}

/** A grant, as it is written down. */
export interface Grant {
  readonly limit: number
  readonly key: number
  readonly units: number
  readonly start: number
  readonly prefetched: boolean
  readonly begun: number
  readonly ended: number
}

const job: PrefetchingJob = JSON.parse(process.argv[2] ?? '')
const CALLERS = 16
const random = randomFrom(job.seed)
const file = openSync(job.file, 'a')
const pool = new pg.Pool({
  ...{ connectionString: job.url, max: 6, application_name: 'prefetch' },
  ...{ connectionTimeoutMillis: 2_000, query_timeout: 1_000 },
})
pool.on('error', () => {})
const db = drizzle({ client: pool })
const ratelimits = prefetchLimits.map(({ limiter, prefix, durable = false }) => {
  const common = { db, limiter, prefix, durable, cleanupProbability: 0.01 }
  return new Ratelimit({ ...common, use: job.prefetching ? [prefetch(job.prefetching)] : [] })
})
let calls = 0
let fromMemory = 0
const errors: Record<string, number> = {}

async function caller(): Promise<void> {
  while (calls < job.calls) {
    calls++
    const limit = Math.floor(random() * ratelimits.length)
    const key = Math.floor(random() * 2)
    const rate = random() < 0.8 ? 1 : 1 + Math.floor(random() * 3)
    const begun = Date.now()
    try {
      const answer = await ratelimits[limit]?.limit(`key ${key}`, { rate })
      if (answer?.success) {
        if (answer.prefetched) fromMemory++
        const { start = 0, prefetched = false } = answer
        const grant: Grant = { limit, key, units: rate, start, prefetched, begun, ended: Date.now() }
        writeSync(file, `${JSON.stringify(grant)}\n`)
      }
      if (random() < 0.3) await sleep(random() * 4)
    } catch (error) {
      if (!(error instanceof RatelimitError) || error.code.startsWith('INVALID_')) throw error
      errors[error.code] = (errors[error.code] ?? 0) + 1
    }
  }
}

await Promise.all(Array.from({ length: CALLERS }, caller))
await Promise.all(ratelimits.map((ratelimit) => ratelimit.close()))
process.send?.({ fromMemory, errors })
process.disconnect()
setTimeout(() => process.exit(), 500).unref()
pool.end()
