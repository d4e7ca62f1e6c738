import { writeSync } from 'node:fs'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { Credits } from '../../src/credits/index.ts'
import { settleExpired } from '../../src/quota/index.ts'

// A process that reserves with a name, or settles, and prints what it has done. It may be killed after that.

/** What a process is to do. */
export interface Job {
  readonly url: string
  readonly prefix: string
  readonly what: 'reserve' | 'settle' | 'settle and hold' | 'settle expired' | 'settle expired and hold'
  /** How far its clock is ahead. */
  readonly aheadMs: number
}

const job: Job = JSON.parse(process.argv[2] ?? '')
const pool = new pg.Pool({ connectionString: job.url })
const db = drizzle({ client: pool })
const ratelimit = new Credits({
  ...{ db, prefix: job.prefix, durable: true },
  clock: () => new Date(Date.UTC(2030, 0, 1) + job.aheadMs),
})

function tell(told: unknown): void {
  writeSync(1, `${JSON.stringify(told)}\n`)
}

/** Keeps a transaction open until the process is killed. */
function hold(): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, 600_000))
}

if (job.what === 'reserve') {
  tell(await ratelimit.reserve('org', { rate: 40, id: 'job', expires: '10m' }))
  await hold()
}
await db.transaction(async (tx) => {
  if (job.what.startsWith('settle expired')) {
    tell(await settleExpired(ratelimit, { tx, as: 'release' }))
  } else {
    tell(await ratelimit.settle({ key: 'org', id: 'job' }, 30, { tx }))
  }
  if (job.what.endsWith('hold')) await hold()
})
await pool.end()
