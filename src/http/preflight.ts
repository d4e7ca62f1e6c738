import { headerOf, type RequestHeaders } from './request-headers.ts'

/**
 * Whether a request is a preflight of CORS. Adapters skip those, unless they have a `skip` of their own: a
 * response of 429 would lack the headers of CORS.
 *
 * @example
 * ```ts
 * import { rateLimit } from 'drizzle-ratelimit/express'
 * import { isPreflight } from 'drizzle-ratelimit/http'
 * import { api } from './app.ts'
 *
 * rateLimit({
 *   ratelimit: api,
 *   key: (req) => req.get('x-api-key'),
 *   skip: (req) => isPreflight(req) || req.path === '/health',
 * })
 * ```
 */
export function isPreflight(request: {
  readonly method?: string | undefined
  readonly headers: RequestHeaders
}): boolean {
  const { method, headers } = request
  if (method !== 'OPTIONS') return false
  return ['origin', 'access-control-request-method'].every((name) => headerOf(headers, name))
}
