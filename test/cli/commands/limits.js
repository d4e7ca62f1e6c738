import { drizzle } from 'drizzle-orm/node-postgres'
import { lockout } from 'drizzle-ratelimit/lockout'
import { Ratelimit } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'

// The module that the tests give to `drizzle-ratelimit top --limits`.

const plans = { free: Ratelimit.fixedWindow(5, '1h'), paid: Ratelimit.fixedWindow(500, '1h') }

const db = drizzle('postgres://unused')
const limiter = Ratelimit.fixedWindow(500, '1h')

export default {
  requests: { limiter: Ratelimit.fixedWindow(5, '1h'), durable: false },
  logins: { limiter: lockout(5, '15m', { block: '1h' }), durable: false },
  exports: { limiterOf: (key) => (key.startsWith('paid') ? plans.paid : plans.free), durable: true },
  tokens: new Quota({ db, limiter, prefix: 'tokens' }),
  plans: { limiter: Ratelimit.unlimited(), durable: false },
  ofPlans: { ratelimit: new Quota({ db, limiter, prefix: 'planned' }), limiterOf: () => plans.free },
  // An object has its own prefix.
  apiCalls: new Ratelimit({ db, limiter, prefix: 'calls' }),
}
