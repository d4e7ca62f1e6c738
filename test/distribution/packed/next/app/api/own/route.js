import { limitedRoute } from 'drizzle-ratelimit/next'
import { key, perHour } from '../../../limits.js'

/** Has a limit of its own behind the proxy's. */
export const GET = limitedRoute({ ratelimit: perHour('own', 2), key }, () => Response.json({ reached: true }))
