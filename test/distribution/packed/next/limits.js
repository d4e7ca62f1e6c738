import { drizzle } from 'drizzle-orm/node-postgres'
import { Ratelimit } from 'drizzle-ratelimit'

const database = drizzle(process.env.DATABASE_URL)

/** So many calls in an hour. */
export function perHour(prefix, tokens, db = database) {
  return new Ratelimit({ db, limiter: Ratelimit.fixedWindow(tokens, '1h'), prefix })
}

/** A limit whose database nobody can reach. */
export const away = perHour('away', 1, drizzle('postgres://nobody@127.0.0.1:1/nothing'))

/** Who calls. */
export function key({ headers }) {
  return headers.get('x-api-key')
}
