import { limitedRoute } from 'drizzle-ratelimit/next'
import { key, perHour } from '../../../limits.js'

export const GET = limitedRoute({ ratelimit: perHour('limited', 7), key }, (_request, { rateLimit }) =>
  Response.json(rateLimit),
)
