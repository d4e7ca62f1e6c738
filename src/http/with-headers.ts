/**
 * The response with more headers. It is the same response if its headers can be changed. Otherwise it is a
 * copy: those of `fetch` and of `Response.redirect` cannot be changed.
 *
 * @example
 * ```ts
 * import { headersOf, withHeaders } from 'drizzle-ratelimit/http'
 * import { api } from './app.ts'
 *
 * const answer = await api.limit('user:123')
 * withHeaders(await fetch('https://example.com'), headersOf(answer, api))
 * ```
 */
export function withHeaders(response: Response, headers: Readonly<Record<string, string>>): Response {
  try {
    // A copy loses the content type that Bun chose by the text.
    return setHeaders(response, headers)
  } catch {
    return setHeaders(new Response(response.body, response), headers)
  }
}

function setHeaders(response: Response, headers: Readonly<Record<string, string>>): Response {
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value)
  return response
}
