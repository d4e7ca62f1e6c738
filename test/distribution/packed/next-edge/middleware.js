import { drizzle } from 'drizzle-orm/pg-proxy'
import { Ratelimit } from 'drizzle-ratelimit'
import { rateLimit } from 'drizzle-ratelimit/next'

// A middleware.js runs in Next's edge runtime, where a database answers over HTTP.

const db = drizzle(async (sql, params) => {
  const body = JSON.stringify({ sql, params })
  return (await fetch(process.env.HTTP_DATABASE, { method: 'POST', body })).json()
})
const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(2, '1h'), prefix: 'edge' })

export const middleware = rateLimit({ ratelimit, key: ({ headers }) => headers.get('x-api-key') })
export const config = { matcher: '/' }
