import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/node-postgres'
import { Semaphore } from '../../src/semaphore/index.ts'
import { answerEach } from '../child.ts'
import { measure, type Round } from '../measure.ts'
import { connectTo } from '../server/connections.ts'

/** What the workers of one process do for a time. */
export interface Job {
  readonly url: string
  readonly key: string
  readonly slots: number
  readonly workers: number
  readonly ms: number
}

/** How long the work under a lease takes. */
const WORK_MS = 15

export interface Worked extends Round {
  /** How long all slots together were in use. */
  readonly busyMs: number
}

/** For all jobs, whatever their limit. */
let jobs: Semaphore | undefined

answerEach<Job, Worked>(async ({ url, key, slots, workers, ms }) => {
  const common = { prefix: 'slots', lease: '30s', durable: false } as const
  jobs ??= new Semaphore({ db: drizzle({ client: connectTo(url).pool }), limit: slots, ...common })
  const semaphore = jobs
  let busyMs = 0
  const check = async () => {
    const job = await semaphore.acquire(key, { timeout: '30s', limit: slots })
    if (!job.success) return false
    const begun = performance.now()
    await sleep(WORK_MS)
    busyMs += performance.now() - begun
    return job.release()
  }
  const round = await measure({ check, key: () => key, callers: workers, ms })
  return { ...round, busyMs }
})
