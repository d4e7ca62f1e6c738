// At most two exports of an organization run at once. The third waits. A crash holds a slot for two seconds.
import { setTimeout as sleep } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { tableSql } from 'drizzle-ratelimit'
import { Semaphore } from 'drizzle-ratelimit/semaphore'

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
const exports = new Semaphore({ db: drizzle({ client }), prefix: 'exports', limit: 2, lease: '2s' })

async function run(name: number, ms: number): Promise<void> {
  const job = await exports.acquire('org:1', { timeout: '10s' })
  if (!job.success) return console.log(`${name} is refused`)
  try {
    console.log(`${name} begins`)
    await sleep(ms, undefined, { signal: job.signal })
    console.log(`${name} ends`)
  } finally {
    await job.release()
  }
}

const [first, second] = [run(1, 300), sleep(50).then(() => run(2, 600))]
await Promise.all([first, second, sleep(100).then(() => run(3, 700))])

await exports.acquire('org:1') // and the process ends before it releases
const answers = [await exports.acquire('org:1'), await exports.acquire('org:1')]
console.log(
  `a crashed export holds a slot, so one is left: ${answers.map(({ success }) => success).join(', ')}`,
)
await sleep(2000)
console.log(`after its lease: ${(await exports.acquire('org:1')).success}`)
await client.close()
