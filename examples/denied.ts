// Who is denied: three callers, of whom two ask too often.

import { setTimeout as sleep } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { countDenials } from 'drizzle-ratelimit/denials'
import { denied } from 'drizzle-ratelimit/reports'

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
const db = drizzle({ client })

const limiter = Ratelimit.fixedWindow(10, '1h')
const api = new Ratelimit({ db, limiter, prefix: 'requests', use: [countDenials({ every: '100ms' })] })

const calls = { ada: 5, eve: 17, mallory: 50 }
for (const [key, times] of Object.entries(calls)) {
  for (let i = 0; i < times; i++) await api.limit(key)
}

// The counts are written in the background.
let found = await denied(api)
for (let tries = 0; tries < 50 && sumOf(found) < 47; tries++) {
  await sleep(100)
  found = await denied(api)
}
for (const { key, denials } of found) console.log(`${key} was denied ${denials} times`)
await client.close()

function sumOf(list: readonly { readonly denials: number }[]): number {
  return list.reduce((sum, { denials }) => sum + denials, 0)
}
