import { rateLimit } from 'drizzle-ratelimit/next'
import { key, perHour } from './limits.js'

const hasOwnLimit = ({ nextUrl }) => nextUrl.pathname === '/api/own'

export const proxy = rateLimit({ ratelimit: perHour('behind', 7), key, hasOwnLimit })
export const config = { matcher: ['/api/behind', '/api/own'] }
