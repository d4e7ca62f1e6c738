import { writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { Semaphore } from '../../src/semaphore/index.ts'

// A process whose workers lease slots until it is killed. It prints each lease at once, because a later line
// would be lost.

/** What a process is to do. */
export interface Job {
  readonly url: string
  readonly prefix: string
  readonly limit: number
  readonly leaseMs: number
  readonly workers: number
}

/** A line of its output: the work under a lease begins, may go on for longer, or must have stopped. */
export interface Told {
  readonly lease: string
  readonly what: 'begins' | 'is extended' | 'ends' | 'is told to stop'
  /** Nanoseconds by the clock of the machine. Of an extension: before it was asked for. */
  readonly at: string
  readonly fence: number
}

const job: Job = JSON.parse(process.argv[2] ?? '')
const pool = new pg.Pool({
  connectionString: job.url,
  max: job.workers,
  query_timeout: 300,
  connectionTimeoutMillis: 300,
})
pool.on('error', () => {})
pool.on('connect', (client) => client.on('error', () => {}))
const jobs = new Semaphore({
  db: drizzle({ client: pool }),
  limit: job.limit,
  lease: job.leaseMs,
  prefix: job.prefix,
  timeout: 300,
})

function tell(lease: string, what: Told['what'], fence: number, at = process.hrtime.bigint()): void {
  const told: Told = { lease, what, at: String(at), fence }
  writeSync(1, `${JSON.stringify(told)}\n`)
}

async function worker(name: string): Promise<void> {
  for (let count = 0; ; count++) {
    const job = await jobs.acquire('org', { timeout: 2000 }).catch(() => undefined)
    if (!job?.success) {
      await sleep(10)
      continue
    }
    const lease = `${name} ${count}`
    tell(lease, 'begins', job.fence)
    let isOver = false
    job.signal.addEventListener('abort', () => {
      if (!isOver) tell(lease, 'is told to stop', job.fence)
    })
    await sleep(Math.random() * 60)
    // Some work is longer than a lease, and some is never ended.
    while (!job.signal.aborted && Math.random() < 0.3) {
      const from = process.hrtime.bigint()
      if (await job.extend().catch(() => false)) tell(lease, 'is extended', job.fence, from)
      await sleep(Math.random() * 100)
    }
    if (job.signal.aborted || Math.random() < 0.02) continue
    isOver = true
    tell(lease, 'ends', job.fence)
    await job.release().catch(() => {})
  }
}

for (let i = 0; i < job.workers; i++) worker(`${process.pid} ${i}`)
