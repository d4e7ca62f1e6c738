import { drizzle } from 'drizzle-orm/postgres-js'
import postgres from 'postgres'
import { Ratelimit } from '../../src/index.ts'

// A process that calls until a call is granted, though its first connection breaks.

const [, , url = '', types] = process.argv
const client = postgres(url, {
  max: 1,
  backoff: () => 0.02,
  ...(types === 'no types' && { fetch_types: false }),
})
const limiter = Ratelimit.fixedWindow(100, '1h')
const ratelimit = new Ratelimit({ db: drizzle({ client }), limiter, prefix: 'types', cleanupProbability: 0 })

const isGranted = () =>
  ratelimit.limit('key').then(
    ({ success }) => success,
    () => false,
  )
while (!(await isGranted()));
console.info('granted')
await client.end()
