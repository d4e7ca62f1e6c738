import { drizzle } from 'drizzle-orm/node-postgres'
import { Ratelimit } from '../../src/index.ts'
import { answerEach } from '../child.ts'
import { PLENTY } from '../contenders/contender.ts'
import { connectTo } from '../server/connections.ts'

export interface MemoryJob {
  readonly url: string
  readonly keys: number
}

/** How many keys are checked at once. */
const WAVE = 2_000

answerEach<MemoryJob, number>(async ({ url, keys }) => {
  const connections = connectTo(url)
  const limiter = new Ratelimit({
    db: drizzle({ client: connections.pool }),
    limiter: Ratelimit.tokenBucket(PLENTY, '1h', PLENTY),
    prefix: 'memory',
    inMemoryBlock: false,
  })
  // Before the measurement, code and connections have taken the memory that they keep.
  for (let wave = 0; wave < 10; wave++) await checkWave(limiter, `warm:${wave}`)
  const before = inUse()
  for (let wave = 0; wave < keys / WAVE; wave++) await checkWave(limiter, `key:${wave}`)
  return inUse() - before
})

async function checkWave(limiter: Ratelimit, name: string): Promise<void> {
  await Promise.all(Array.from({ length: WAVE }, (_, number) => limiter.limit(`${name}:${number}`)))
}

function inUse(): number {
  if (!globalThis.gc) throw new Error('This needs --expose-gc.')
  // Two collections, because objects with a finalizer go in the second.
  globalThis.gc()
  globalThis.gc()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
