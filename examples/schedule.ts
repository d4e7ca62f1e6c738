// Two workers share a partner that accepts one call every 100 ms. Each call gets a start time of its own.
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { schedule } from 'drizzle-ratelimit/schedule'

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
const now = new Date() // a clock that stands still
const limiter = Ratelimit.gcra(10, '1s', { burst: 1 })
const common = { db: drizzle({ client }), limiter, prefix: 'partner', clock: () => now }
const workers = { first: new Ratelimit(common), second: new Ratelimit(common) }

for (const name of ['first', 'second', 'first', 'second'] as const) {
  const turn = await schedule(workers[name], 'partner', { within: 200 })
  console.log(
    turn.success ? `${name}: starts in ${turn.delay} ms` : `${name}: again in ${turn.retryAfter} ms`,
  )
}
await client.close()
