import { Ratelimit } from '../../../src/index.ts'

// A module for `drizzle-ratelimit top --limits` that does not say in which table the rows are.

export default {
  requests: { limiter: Ratelimit.fixedWindow(5, '1h') },
}
