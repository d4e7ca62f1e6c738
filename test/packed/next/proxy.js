import { rateLimit } from 'drizzle-ratelimit/next'
import { key, perHour } from './limits.js'

export const proxy = rateLimit({ ratelimit: perHour('behind', 7), key })
export const config = { matcher: '/api/behind' }
