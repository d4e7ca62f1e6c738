export { type AddressedRequest, type ClientKeyOptions, clientKey } from './client-key.ts'
export { type HeaderOptions, type HeaderStandard, headersOf, type RateLimitHeaders } from './headers.ts'
export type { Policy } from './policy.ts'
export { type Problem, tooManyRequests } from './problem.ts'
