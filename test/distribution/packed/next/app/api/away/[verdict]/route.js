import { limitedRoute } from 'drizzle-ratelimit/next'
import { away, key } from '../../../../limits.js'

/** Does what the path says. */
function onError(error, request) {
  console.log(`onError was told ${error.code}`)
  return request.nextUrl.pathname.split('/').at(-1)
}

export const GET = limitedRoute({ ratelimit: away, key, onError }, async (_request, { params, rateLimit }) =>
  Response.json({ ...(await params), isLimited: rateLimit !== undefined }),
)
