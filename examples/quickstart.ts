// Limits at work in real time, on a Postgres inside this process.
import { setTimeout as sleep } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { migrate } from 'drizzle-orm/pglite/migrator'
import { checkTables, Ratelimit, rateLimitDurable, rateLimitEphemeral } from 'drizzle-ratelimit'

const client = await PGlite.create()
const db = drizzle({ client })
await migrate(db, { migrationsFolder: 'drizzle' })
const differences = await checkTables(db)
console.log(`Migrated; checkTables finds ${differences.length} differences.\n`)

const api = new Ratelimit({ db, limiter: Ratelimit.tokenBucket(2, '1s', 5), prefix: 'api' })

console.log('A bucket of 5 that gets 2 tokens a second. A burst of 7 calls:')
for (const answer of await Promise.all(Array.from({ length: 7 }, () => api.limit('user:123')))) {
  console.log(
    answer.success
      ? `  allowed, ${answer.remaining} remaining`
      : `  denied, retry after ${answer.retryAfter} ms`,
  )
}

const { retryAfter } = await api.limit('user:123')
console.log(`\nWaiting the ${retryAfter} ms that the denial names:`)
await sleep(retryAfter)
console.log(' ', await api.limit('user:123'))

console.log('\nAn expensive call, rate 4, waits until there is enough:')
const started = performance.now()
const { success, remaining } = await api.blockUntilReady('user:123', '5s', { rate: 4 })
console.log(
  `  ${success ? 'allowed' : 'denied'} after ${Math.round(performance.now() - started)} ms, ${remaining} remaining`,
)

const credits = new Ratelimit({
  db,
  limiter: Ratelimit.fixedWindow(1000, '1d'),
  prefix: 'credits',
  durable: true,
})
console.log('\nA durable quota of 1000 a day, charged in a transaction that fails:')
await db
  .transaction(async (tx) => {
    const quota = await credits.limit('org:1', { rate: 250, tx })
    console.log(`  inside: ${quota.remaining} remaining`)
    throw new Error('the job could not be stored')
  })
  .catch((error: Error) => console.log(`  rolled back: ${error.message}`))
console.log(`  outside: ${(await credits.getRemaining('org:1')).remaining} remaining`)
await credits.limit('org:1', { rate: 10 })

console.log('\nThe state in the tables:')
console.table(await db.select().from(rateLimitEphemeral))
console.table(await db.select().from(rateLimitDurable))
await client.close()
