import { limitedRoute } from 'drizzle-ratelimit/next'
import { key, perHour } from '../../../limits.js'

/** Answers with the status that it is asked for, or throws. */
export const POST = limitedRoute(
  { ratelimit: perHour('failing', 2), key, count: 'failures' },
  async (request) => {
    const asked = await request.text()
    if (asked === 'throw') throw new Error('The handler failed.')
    return new Response(null, { status: Number(asked) })
  },
)
